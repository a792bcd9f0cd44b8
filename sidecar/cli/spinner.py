"""Something that moves while nothing else does, on a terminal only."""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import TYPE_CHECKING, Final, Self, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PERIOD: Final = 0.1
CLEAR: Final = "\r\x1b[K"


class Spinner:
    """Turns in a thread of its own between `with` and its end. `label` is what it says.

    What else goes to the terminal meanwhile is written by `write`, so that neither wipes the other away.
    """

    def __init__(self, stream: TextIO, *, shown: bool) -> None:
        self.label = "waiting"
        self._stream = stream
        self._shown = shown and stream.isatty()
        self._ended = threading.Event()
        self._still = False
        self._drawn = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._shown:
            self._thread = threading.Thread(target=self._turn, name="spinner", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._clear()

    def write(self, stream: TextIO, text: str) -> None:
        """Write text where the spinner may be, which makes room.

        It keeps off a line of its terminal that the text leaves open, until a later text ends that.
        """
        with self._lock:
            self._clear()
            stream.write(text)
            stream.flush()
            if text and stream.isatty():
                self._still = not text.endswith("\n")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Keep still, for a prompt."""
        with self._lock:
            before, self._still = self._still, True
            self._clear()
        try:
            yield
        finally:
            self._still = before

    def _clear(self) -> None:
        if self._drawn:
            self._stream.write(CLEAR)
            self._stream.flush()
            self._drawn = False

    def _turn(self) -> None:
        for frame in itertools.cycle(FRAMES):
            if self._ended.wait(PERIOD):
                return
            with self._lock:
                if not self._still:
                    self._stream.write(f"{CLEAR}{frame} {self.label[:60]}")
                    self._stream.flush()
                    self._drawn = True
