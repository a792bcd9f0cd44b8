"""Makes this process the one that orphaned descendants come to, and a good parent of whatever it starts."""

from __future__ import annotations

import ctypes
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

PR_SET_CHILD_SUBREAPER: Final = 36
"""From linux/prctl.h; see prctl(2)."""
OF_PYTHON: Final = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""Ignored by the interpreter, and set back by `subprocess` in what it starts."""


def claim(*, on: bool = True) -> bool:
    """Have descendants whose parents ended become our children, instead of those of process 1; whether that works.

    A process that called setsid, or was forked twice, is then still found below us (prctl(2)). Once per process;
    what is started before the claim has no such bond.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0) == 0)


def plain_signals() -> None:
    """Keep signals that we were started with ignored, or blocked, from being so in what we start.

    A handler ends with exec, an ignored signal does not: so what is ignored gets a handler that does nothing.
    Main thread only.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals():
        if number in OF_PYTHON or signal.getsignal(number) is not signal.SIG_IGN:
            continue
        if number == signal.SIGCHLD:  # ignored, it would have the kernel forget how children ended
            signal.signal(number, signal.SIG_DFL)
        else:
            signal.signal(number, _nothing)
            signal.siginterrupt(number, False)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Take no notice of a signal."""
