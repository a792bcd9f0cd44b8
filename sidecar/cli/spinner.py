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
    """Turns in a thread of its own between `with` and its end. `label` is what it says."""

    def __init__(self, stream: TextIO, *, shown: bool) -> None:
        self.label = "waiting"
        self._stream = stream
        self._shown = shown and stream.isatty()
        self._ended = threading.Event()
        self._paused = False
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
            self.clear()

    def clear(self) -> None:
        """Take it off the line, so that something else can be written there."""
        if self._shown:
            with self._lock:
                self._stream.write(CLEAR)
                self._stream.flush()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Keep still, for a prompt."""
        self._paused = True
        self.clear()
        try:
            yield
        finally:
            self._paused = False

    def _turn(self) -> None:
        for frame in itertools.cycle(FRAMES):
            if self._ended.wait(PERIOD):
                return
            if not self._paused:
                with self._lock:
                    self._stream.write(f"{CLEAR}{frame} {self.label[:60]}")
                    self._stream.flush()
