"""One task in the hands of a worker: what it says, what it hears, and the lease."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from sidecar.worker.client import Pause
from sidecar.worker.errors import AwayError, LostError, TaskOverError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from sidecar.worker.client import Client

WAIT: Final = 30.0
"""Seconds for which a request waits at the sidecar."""
MOST_LINES: Final = 500
MOST_BYTES: Final = 256 * 1024
"""What goes in one request, and what may wait to be sent before a caller has to."""
PIECE: Final = 64 * 1024
"""Characters of text in one line."""
UNHEARD: Final = 0.25
"""Seconds before a worker listens for news: most small tasks are done by then, and a request is spared."""
LEAVING: Final = 2.0
"""Seconds for which a worker that leaves a task tries to send the end of it, or to give it back."""
LONGEST_PAUSE: Final = 1.0
"""Seconds between two attempts while the sidecar is away: shorter than any lease."""

log = logging.getLogger("sidecar.worker")


class Task:
    """One task, and the lease on it. What the methods say is sent in order, and again where an answer got lost.

    `text` is its first message and `message` the whole of it, `inputs` is what came since, `attempt` counts from 1.
    All methods raise TaskOverError once the task is over, and WorkerError when the sidecar refused a line.
    """

    def __init__(self, client: Client, document: Mapping[str, Any]) -> None:
        self.id: str = document["task"]["id"]
        self.context_id: str = document["task"]["contextId"]
        self.attempt: int = document["attempt"]
        self.message: dict[str, Any] = document["message"]
        self.inputs: list[dict[str, Any]] = list(document["input"])
        self._client = client
        self._lease: str = document["lease"]
        self._seconds = float(document["lease_seconds"])
        self._earlier = len(self.inputs)
        self._asked = 0
        self._outbox: deque[bytes] = deque()
        self._unsent = 0
        self._accepted = 0
        self._ended = False
        self._lost: str | None = None
        self._refused: WorkerError | None = None
        self._bell = asyncio.Event()
        self._loops: tuple[asyncio.Task[None], ...] = ()
        self._scope: asyncio.Task[Any] | None = None
        self._canceling = 0
        self._interrupted = False

    @property
    def prompt(self) -> str:
        """The text of its first message."""
        text: str = self.message["text"]
        return text

    @property
    def over(self) -> bool:
        """Whether nothing more can be said of it."""
        return self._ended or self._lost is not None

    async def text(self, text: str) -> None:
        """Say a piece of the reply."""
        for start in range(0, len(text), PIECE):
            await self.say({"type": "text", "text": text[start : start + PIECE]})

    async def thinking(self, text: str) -> None:
        """Say a piece of the reasoning."""
        await self.say({"type": "thinking", "text": text})

    async def status(self, message: str) -> None:
        """Say what is going on."""
        await self.say({"type": "status", "message": message})

    async def tool(self, name: str | None, content: str, **more: object) -> None:
        """Say that a tool was called: `call_id`, `is_error`, `duration_ms`, `exit_code`, `truncated`."""
        await self.say({"type": "tool", "name": name, "content": content, **more})

    async def artifact(self, name: str, *parts: Mapping[str, Any], **more: object) -> None:
        """Say that something was made, of these parts: `artifact_id`, `append`, `last`."""
        await self.say({"type": "artifact", "name": name, "parts": parts, **more})

    async def turn(self) -> None:
        """Begin the next turn."""
        await self.say({"type": "turn"})

    async def ask(self, prompt: str) -> str:
        """Ask for input and return its text; the whole of it is the next of `inputs`.

        A task that is handed out again brings its input along: then the same question has its answer already.
        """
        self._check()
        if len(self.inputs) <= self._asked:
            await self.say({"type": "input-required", "prompt": prompt})
            while len(self.inputs) <= self._asked:
                await self._changed()
        self._asked += 1
        text: str = self.inputs[self._asked - 1]["text"]
        return text

    async def complete(self, response: str | None = None) -> None:
        """End it well; without a response its reply is the text of the last turn. Returns once that is on disk."""
        await self._end(
            {"type": "completed"} if response is None else {"type": "completed", "response": response}
        )

    async def reply(self, *parts: Mapping[str, Any]) -> None:
        """End it with a message instead of a task, where the caller's protocol can."""
        await self._end({"type": "message", "parts": parts})

    async def fail(self, message: str) -> None:
        """End it as failed."""
        await self._end({"type": "failed", "message": message})

    async def reject(self, message: str) -> None:
        """End it as one that this worker does not take."""
        await self._end({"type": "rejected", "message": message})

    async def say(self, line: Mapping[str, Any]) -> None:
        """Say one line of the vocabulary (docs/workers.md). Raises ValueError or TypeError for what is no JSON."""
        data = json.dumps(line, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        self._check()
        while self._unsent > MOST_BYTES or len(self._outbox) >= MOST_LINES:
            await self._changed()
        self._outbox.append(data)
        self._unsent += len(data)
        self._ring()

    async def flush(self) -> None:
        """Wait until all that was said is on disk."""
        while self._outbox:
            await self._changed(ended=True)

    # the lease

    def open(self) -> None:
        """Begin to send and to listen."""
        if not self._loops:
            loop = asyncio.get_running_loop()
            self._loops = (
                loop.create_task(self._send_for_ever(), name=f"send of {self.id}"),
                loop.create_task(self._listen_for_ever(), name=f"lease of {self.id}"),
            )

    async def aclose(self) -> None:
        """Leave it: unless it has ended it is given back, and handed to another worker at once."""
        canceled = False
        if self._loops:
            leaving = asyncio.get_running_loop().create_task(self._leave(), name=f"leave {self.id}")
            while not leaving.done():
                try:
                    await asyncio.wait((leaving,))
                except asyncio.CancelledError:  # it has to wait: the task would be missing for a lease
                    canceled = True
        self._lost = self._lost or "it was left"
        if canceled:
            raise asyncio.CancelledError

    async def _leave(self) -> None:
        loops, self._loops = self._loops, ()
        try:
            if self._ended and self._outbox:
                with suppress(TaskOverError, WorkerError, TimeoutError):
                    async with asyncio.timeout(LEAVING):
                        await self.flush()
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.wait(loops)
        if not self._done:
            with suppress(AwayError, LostError, WorkerError, TimeoutError):
                async with asyncio.timeout(LEAVING):
                    await self._client.call(f"tasks/{self.id}/release", lease=self._lease)

    async def __aenter__(self) -> Self:
        self._scope = scope = asyncio.current_task()
        assert scope is not None  # noqa: S101 - it is one that awaits this
        self._canceling = scope.cancelling()
        self.open()
        if self._lost is not None:
            self._interrupt()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        scope, self._scope = self._scope, None
        try:
            if self._interrupted and scope is not None:
                foreign = scope.uncancel() > self._canceling
                if error is None:
                    with suppress(asyncio.CancelledError):
                        await asyncio.sleep(0)  # the cancellation was under way when the block ended
                    if foreign:
                        raise asyncio.CancelledError
                if isinstance(error, asyncio.CancelledError):
                    return not foreign
            if error is not None and not isinstance(error, Exception):
                return False
            await self._close_with(error)
            return True
        finally:
            await self.aclose()

    async def _close_with(self, error: Exception | None) -> None:
        """Say how it ended, unless that was said; a failure of the block is the task's, and logged."""
        if isinstance(error, TaskOverError):
            return
        try:
            if error is None and not self.over:
                await self.complete()
        except TaskOverError:
            return
        except WorkerError as refused:
            error = refused
        if error is None:
            return
        log.error("task %s failed", self.id, exc_info=error)
        self._refused = None
        with suppress(TaskOverError, WorkerError):
            if not self.over:
                await self.fail(str(error) or type(error).__name__)

    async def _end(self, line: Mapping[str, Any]) -> None:
        await self.say(line)
        self._ended = True
        await self.flush()

    @property
    def _done(self) -> bool:
        return self._lost is not None or (self._ended and not self._outbox)

    def _check(self, *, ended: bool = False) -> None:
        if self._refused is not None:
            raise self._refused
        if self._lost is not None:
            raise TaskOverError(f"task {self.id} is over: {self._lost}")
        if self._ended and not ended:
            raise TaskOverError(f"task {self.id} is over: its last line was said")

    async def _changed(self, *, ended: bool = False) -> None:
        self._check(ended=ended)
        await self._bell.wait()
        self._check(ended=ended)

    def _ring(self) -> None:
        self._bell.set()
        self._bell = asyncio.Event()

    def _lose(self, reason: str) -> None:
        if not self._done:
            self._lost = reason
            self._outbox.clear()
            self._ring()
            self._interrupt()

    def _interrupt(self) -> None:
        if self._scope is not None and not self._interrupted:
            self._interrupted = True
            self._scope.cancel()

    async def _send_for_ever(self) -> None:
        pause = Pause(self._client, LONGEST_PAUSE)
        while not self._done:
            if not self._outbox:
                await self._bell.wait()
                continue
            batch = self._batch()
            body = b"\n".join(
                b'%b,"seq":%d}' % (line[:-1], seq) for seq, line in enumerate(batch, self._accepted + 1)
            )
            try:
                await self._tell("events", body=body)
            except AwayError as error:
                await pause.after(error)
            except WorkerError as error:
                self._refuse(error)
            else:
                pause.reset()

    async def _listen_for_ever(self) -> None:
        await asyncio.sleep(UNHEARD)
        pause = Pause(self._client, LONGEST_PAUSE)
        while not self._done:
            try:
                await self._tell("heartbeat", wait=min(WAIT, self._seconds / 2))
            except AwayError as error:
                await pause.after(error)
            except WorkerError as error:
                self._refuse(error)
                await pause.after(error)
            else:
                pause.reset()

    def _batch(self) -> Sequence[bytes]:
        batch: list[bytes] = []
        size = 0
        for line in self._outbox:
            size += len(line)
            if batch and (size > MOST_BYTES or len(batch) == MOST_LINES):
                break
            batch.append(line)
        return batch

    async def _tell(self, what: str, *, wait: float = 0.0, body: bytes | None = None) -> None:
        heard = len(self.inputs) - self._earlier
        try:
            answer = await self._client.call(
                f"tasks/{self.id}/{what}", lease=self._lease, wait=wait, heard=heard, body=body
            )
        except LostError:
            self._lose("it was handed to another worker")
            return
        if answer is None:
            return
        for _ in range(min(answer["accepted"] - self._accepted, len(self._outbox))):
            self._unsent -= len(self._outbox.popleft())
        self._accepted = max(self._accepted, answer["accepted"])
        self.inputs += answer["input"][len(self.inputs) - self._earlier - heard :]
        self._ring()
        if answer["cancelled"]:
            self._lose("it was ended elsewhere")

    def _refuse(self, error: WorkerError) -> None:
        """Give up what waits: the sidecar refused a line of it, and took none."""
        self._refused = error
        self._ended = False
        self._outbox.clear()
        self._unsent = 0
        self._ring()
