"""What `/proc` says of processes: who they are, whose children, and with which environment they began (proc(5))."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROC: Final = Path("/proc")
BOOT_ID: Final = PROC / "sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True)
class Seen:
    """A process as it was seen. Equal where it is the same process, whatever has become of it since.

    `start` is in clock ticks since the machine started; with the pid, that makes it one process.
    """

    pid: int
    start: int
    state: str = field(compare=False)
    parent: int = field(compare=False)
    group: int = field(compare=False)
    session: int = field(compare=False)

    @property
    def lives(self) -> bool:
        """Whether it runs: not a process that ended and is still listed for its parent."""
        return self.state not in "ZXx"


def look(pid: int) -> Seen | None:
    """Return what can be seen of a process, None if there is none."""
    try:
        text = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    parent, group, session = map(int, fields[1:4])
    return Seen(pid, int(fields[19]), fields[0].decode(), parent, group, session)


def again(seen: Seen) -> Seen | None:
    """Look at a process again; None if it is gone, or ended, whoever has its pid now."""
    now = look(seen.pid)
    return now if now is not None and now.start == seen.start and now.lives else None


def everybody() -> Iterator[int]:
    """Yield the pids of all processes that can be seen."""
    return (int(name) for name in os.listdir(PROC) if name.isdigit())  # noqa: PTH208 - names are all it takes


def children(pid: int) -> tuple[int, ...]:
    """Return the children of a process, those that ended included."""
    threads = f"{PROC}/{pid}/task"
    found: list[int] = []
    try:
        for thread in os.listdir(threads):  # noqa: PTH208 - asked at the end of each task: plain text costs least
            with suppress(ProcessLookupError), open(f"{threads}/{thread}/children", "rb") as file:  # noqa: PTH123 - likewise
                found += map(int, file.read().split())
    except FileNotFoundError:
        if look(pid) is None:
            return ()
        return _children_by_search(pid)
    except OSError:
        return ()
    return tuple(found)


def _children_by_search(pid: int) -> tuple[int, ...]:
    """Find children where the kernel does not list them (CONFIG_PROC_CHILDREN), or while threads come and go."""
    seen = (look(one) for one in everybody())
    return tuple(each.pid for each in seen if each is not None and each.parent == pid)


def descendants(pids: Iterable[int]) -> list[Seen]:
    """Return the living descendants of some processes, those nearest to them first."""
    found: dict[int, Seen] = {}
    above = list(pids)
    while above:
        below = [child for pid in above for child in children(pid) if child not in found]
        above = []
        for pid in below:
            if (seen := look(pid)) is not None and seen.lives:
                found[pid] = seen
                above.append(pid)
    return list(found.values())


def began_with(pid: int, name: str) -> str | None:
    """Return the value of a variable in the environment that a process began with, None where that cannot be told."""
    try:
        text = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    prefix = os.fsencode(name) + b"="
    return next(
        (os.fsdecode(one[len(prefix) :]) for one in text.split(b"\0") if one.startswith(prefix)), None
    )


def send(seen: Seen, number: signal.Signals) -> None:
    """Send a signal to a process, and to no other one that may have its pid by now; errors are not told."""
    with suppress(OSError):
        try:
            descriptor = os.pidfd_open(seen.pid)
        except ProcessLookupError:
            return
        except OSError:  # no such call here, or it is forbidden: the pid alone must do
            if again(seen) is not None:
                os.kill(seen.pid, number)
            return
        try:
            if again(seen) is not None:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def boot_id() -> str:
    """Return what tells this start of the machine from all others, empty where that is hidden."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
