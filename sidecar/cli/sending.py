"""`sidecar send` and `sidecar tasks`: a task from the operator's terminal, through the desk."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from sidecar.cli.client import running_of
from sidecar.cli.output import complain, print_json, print_lines, table
from sidecar.cli.running import AwayError, call, events
from sidecar.cli.spinner import Spinner
from sidecar.errors import InputError, SidecarError, visible

if TYPE_CHECKING:
    import argparse

    from sidecar.cli.running import Event, Running

FINAL: Final = frozenset({"completed", "failed", "rejected", "canceled"})


def _path(capsule: str, *rest: str) -> str:
    return "/".join(("/api/capsules", quote(capsule, safe="~"), *(quote(part) for part in rest)))


def send(arguments: argparse.Namespace) -> int:
    """Start a task, or answer one, and print its stream; the exit status says how it ended."""
    text = " ".join(arguments.text)
    if text == "-":
        text = sys.stdin.read()
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the message is not UTF-8: character {error.start + 1} cannot be sent") from None
    running = running_of(arguments)
    body = {"text": text, "task_id": arguments.task, "context_id": arguments.context}
    task, after = _post(running, arguments.capsule, {k: v for k, v in body.items() if v is not None})
    if task["status"]["state"] == "rejected":
        raise SidecarError(
            f"{arguments.capsule} has no room for another task now (sidecar tasks list {arguments.capsule})"
        )
    if not arguments.wait:
        if arguments.json:
            print_json(task)
        else:
            print_lines([task["id"]])
        return 0
    return _Terminal(running, arguments.capsule, task["id"], as_json=arguments.json).follow(after)


def tasks_list(arguments: argparse.Namespace) -> int:
    """Show the tasks of a capsule: the live ones, and the newest of those that ended."""
    document = call(running_of(arguments), "GET", _path(arguments.capsule, "tasks")).document()
    if arguments.json:
        print_json(document)
        return 0
    rows = [
        (t["id"], t["state"], t["context_id"], t["created_at"], t["status"] or "") for t in document["tasks"]
    ]
    print_lines(table(("TASK", "STATE", "CONTEXT", "CREATED", "STATUS"), rows))
    return 0


def tasks_get(arguments: argparse.Namespace) -> int:
    """Print a task as it stands, with its reply."""
    task = call(running_of(arguments), "GET", _path(arguments.capsule, "tasks", arguments.task)).document()
    if arguments.json:
        print_json(task)
        return 0
    print_lines([f"{task['id']} {task['status']['state']}"])
    for artifact in task.get("artifacts", ()):
        print_lines([f"{artifact['name']}:"])
        for part in artifact["parts"]:
            print_lines(part.get("text", "").splitlines())
    if message := task["status"].get("message"):
        print_lines([part["text"] for part in message["parts"]])
    return 0


def tasks_cancel(arguments: argparse.Namespace) -> int:
    """Cancel a task; one that has ended stays as it is."""
    task = call(
        running_of(arguments), "POST", _path(arguments.capsule, "tasks", arguments.task, "cancel")
    ).document()
    if arguments.json:
        print_json(task)
    else:
        print_lines([f"{task['id']} {task['status']['state']}"])
    return 0 if task["status"]["state"] == "canceled" else 1


def tasks_watch(arguments: argparse.Namespace) -> int:
    """Print the stream of a task from its beginning."""
    running = running_of(arguments)
    task = call(running, "GET", _path(arguments.capsule, "tasks", arguments.task)).document()
    return _Terminal(running, arguments.capsule, task["id"], as_json=arguments.json).follow()


def _post(running: Running, capsule: str, body: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    answer = call(running, "POST", _path(capsule, "messages"), body=body)
    return answer.document(), answer.last_event_id


class _Terminal:
    """Shows a task's stream: the reply on standard output, everything about it on standard error."""

    def __init__(self, running: Running, capsule: str, task_id: str, *, as_json: bool) -> None:
        self._running = running
        self._capsule = capsule
        self._task_id = task_id
        self._again = f"sidecar tasks watch {capsule} {task_id}"
        self._as_json = as_json
        self._spinner = Spinner(sys.stderr, shown=not as_json)
        self._streamed = False
        self._open_line = False

    def follow(self, after: str | None = None) -> int:
        """Print until the task ends, or waits for input that nobody is there to give; begin behind a frame."""
        path = _path(self._capsule, "stream") + "?" + urlencode({"task": self._task_id})
        try:
            self._say_unattended()
            with self._spinner:
                for event in events(self._running, path, after):
                    status = self._take(event)
                    if status is not None:
                        return status
        except KeyboardInterrupt:
            self._end_line()
            if sys.stderr.isatty():
                sys.stderr.write("\n")  # behind the ^C that the terminal shows
            complain(f"the task goes on: {self._again}")
            return 130
        except AwayError as error:
            self._end_line()
            raise SidecarError(f"{error}; {self._again} takes it up again") from error
        raise SidecarError(f"the stream ended before the task: {self._again} takes it up again")

    def _say_unattended(self) -> None:
        row = call(self._running, "GET", _path(self._capsule)).document()
        if row["backend"] == "inbox" and not row["workers"]:
            self._note(f"no worker is attached to {self._capsule}: the task waits for one")

    def _take(self, event: Event) -> int | None:
        """Show one event; return the exit status when it was the last."""
        data = event.data
        if self._as_json:
            print(json.dumps({"event": event.kind, **data}, separators=(",", ":")), flush=True)
        if data.get("id") != self._task_id:
            return None
        if event.kind == "text" and not self._as_json:
            self._text(data["text"], final=data["final"])
        elif event.kind == "artifact" and not self._as_json:
            self._note(
                f"{data['artifact']['tool_name'] or 'artifact'}: {_short(data['artifact']['content'])}"
            )
        elif event.kind == "status":
            return self._status(data)
        return None

    def _status(self, data: dict[str, Any]) -> int | None:
        state, message = data["status"]["state"], data["status"]["message"]
        if state == "input-required":
            return self._ask(message)
        if data["final"]:
            self._end_line()
        if not self._as_json:
            self._note(state if not message else f"{state}: {message}")
        if not data["final"]:
            return None
        if (
            not self._as_json
            and state == "completed"
            and not self._streamed
            and (text := data["status"].get("response"))
        ):
            self._text(text, final=True)
        return 0 if state == "completed" else 1

    def _text(self, text: str, *, final: bool) -> None:
        self._streamed = True
        if text:
            self._spinner.write(
                sys.stdout,
                text if text.isprintable() else "\n".join(visible(line) for line in text.split("\n")),
            )
            self._open_line = not text.endswith("\n")
        if final:
            self._end_line()

    def _end_line(self) -> None:
        if self._open_line:
            self._spinner.write(sys.stdout, "\n")
            self._open_line = False

    def _note(self, text: str) -> None:
        if not self._as_json:
            if sys.stdout.isatty():
                self._end_line()
            self._spinner.label = text
            self._spinner.write(sys.stderr, f"{visible(text)}\n")

    def _ask(self, prompt: str) -> int | None:
        self._end_line()
        if not self._as_json:
            self._spinner.write(sys.stderr, f"{visible(prompt)}\n")
        with self._spinner.paused():
            answer = None if self._as_json or not sys.stdin.isatty() else _answer()
            if answer is None:
                complain(
                    f"the task waits for input: sidecar send {self._capsule} --task {self._task_id} TEXT"
                )
                return 1
        _post(self._running, self._capsule, {"text": answer, "task_id": self._task_id})
        return None


def _answer() -> str | None:
    """Read an answer from the terminal, where the reply may not go; None where its input was ended."""
    while True:
        sys.stderr.write("> ")
        sys.stderr.flush()
        try:
            answer = input()
            answer.encode()
        except EOFError:
            sys.stderr.write("\n")
            return None
        except UnicodeError:
            complain("that is not UTF-8: it cannot be sent; write it again")
        else:
            return answer


def _short(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
