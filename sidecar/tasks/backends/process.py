"""One process that a command runs: how it is started, its pipes, and how it ended."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sidecar.ops import proc
from sidecar.tasks.backends.pipes import Reader, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

HANGUP: Final = 0.1
"""Seconds for which descendants may still finish the output of a process that ended."""
POLL: Final = 0.02
"""Seconds between two looks at a process where the kernel has no pidfd_open."""


@dataclass(frozen=True, slots=True)
class Start:
    """What is started: the words, the directory it starts in, the whole of its environment, and the task it is for."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    task_id: str


class Process:
    """A process of ours, in a session and a group of its own.

    When it ends, `exited` is set, and `status` is its exit status, or minus the number of the signal that ended it. Its
    pid and its group are nobody else's until `bury`. `news` is set when it ends, or is to end sooner.
    """

    def __init__(
        self, popen: subprocess.Popen[bytes], task_id: str, leave: Callable[[str | None], None]
    ) -> None:
        assert popen.stdin is not None  # noqa: S101 - for the type checker: all three are pipes
        assert popen.stdout is not None  # noqa: S101 - likewise
        assert popen.stderr is not None  # noqa: S101 - likewise
        self.task_id = task_id
        self.pid = popen.pid
        seen = proc.look(popen.pid)
        self.start = seen.start if seen is not None else 0
        self.leave = leave
        self.stdin, self.stdout, self.stderr = Writer(popen.stdin), Reader(popen.stdout), Reader(popen.stderr)
        self.status: int | None = None
        self.exited = asyncio.Event()
        self.news = asyncio.Event()
        self.deadline = math.inf
        self.ending: asyncio.Task[None] | None = None
        self.record: int | None = None
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        self._pidfd: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:
            self._poll()
        else:
            self._loop.add_reader(self._pidfd, self._look)

    @classmethod
    def spawn(cls, start: Start, leave: Callable[[str | None], None]) -> Self:
        """Start a process: its own session, no descriptor but three pipes, signals as they are by default.

        `leave` is told when something of it outlives SIGKILL, and with None when that is gone. Raises OSError, with
        the directory as `filename` where it is that which is missing, and ValueError for what no program can be given.
        """
        popen = subprocess.Popen(  # noqa: S603 - the operator's configuration says what to run, no shell is involved
            list(start.argv),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=start.cwd,
            env=start.env,
            start_new_session=True,
        )
        return cls(popen, start.task_id, leave)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the group; it is still ours, since its leader is not buried."""
        try:
            os.killpg(self.pid, number)
        except OSError:  # nobody is left in it, or they are another user's
            return

    def hurry(self, deadline: float) -> None:
        """Have it be killed at this time of the loop, if that is sooner than what was said before."""
        if deadline < self.deadline:
            self.deadline = deadline
            self.news.set()

    def bury(self) -> None:
        """Let go of everything that is held of a process that ended."""
        self._close()
        self._popen.poll()

    def abandon(self) -> None:
        """Let go of a process though it lives: nobody waits for it any more."""
        self._close()
        self._popen.returncode = self._popen.poll() or -signal.SIGKILL  # else it is said to leak

    def _close(self) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()
        self._unwatch()

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _poll(self) -> None:
        self._look()
        if not self.exited.is_set():
            self._timer = self._loop.call_later(POLL, self._poll)

    def _look(self) -> None:
        """See whether it ended, without burying it."""
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # somebody else buried it
            ended, self.status = None, 0
        else:
            if ended is None:
                return
            self.status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        self._unwatch()
        self._timer = self._loop.call_later(HANGUP, self.stdout.finish)
        self.stdin.close()
        self.exited.set()
        self.news.set()
