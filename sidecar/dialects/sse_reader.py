"""Reading server-sent events (HTML standard, section 9.2.6): bytes in any pieces to whole frames, bounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sidecar.dialects.reading import UnreadableError
from sidecar.dialects.sse import last_event_id

MOST_FRAME: Final = 24 * 1024 * 1024
"""Bytes of one frame: more than any reply that is taken, written in JSON."""

_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: its event (`message` where it names none), its data, and its own id where that is a number."""

    event: str
    data: bytes
    number: int | None = None


class SseReader:
    r"""Takes the bytes of a stream as they come and gives whole frames; a half one at the end counts as nothing.

    Lines end in `\n`, `\r\n` or `\r`. Comments give nothing. An id counts for its own frame alone, since no frame of
    a murmur door has the number of the one before.
    """

    def __init__(self, most: int = MOST_FRAME) -> None:
        self._most = most
        self._rest = bytearray()
        self._searched = 0
        self._size = 0
        self._begun = False
        self._event = b""
        self._data: list[bytes] = []
        self._number: int | None = None

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames that are whole with these bytes. Raises UnreadableError where one is over the limit."""
        self._rest += chunk
        if not self._begun:
            if len(self._rest) < len(_MARK) and _MARK.startswith(self._rest):
                return []
            self._begun = True
            if self._rest.startswith(_MARK):
                del self._rest[: len(_MARK)]
        found: list[Frame] = []
        place = 0
        while (line := self._line(place)) is not None:
            text, place = line
            self._take(text, found)
        del self._rest[:place]
        self._searched -= place
        if self._size + len(self._rest) > self._most:
            raise UnreadableError(f"a frame of its stream is over {self._most} bytes")
        return found

    def _line(self, start: int) -> tuple[bytes, int] | None:
        """Return the line that begins here and where the next one does, None while its end is not there."""
        rest = self._rest
        place = max(start, self._searched)
        newline = rest.find(b"\n", place)
        cr = rest.find(b"\r", place, None if newline < 0 else newline)
        if cr < 0:
            if newline < 0:
                self._searched = len(rest)
                return None
            self._searched = newline + 1
            return bytes(rest[start:newline]), newline + 1
        if cr + 1 == len(rest):  # the \n that belongs to it may be still to come
            self._searched = cr
            return None
        end = cr + 2 if rest[cr + 1] == ord("\n") else cr + 1
        self._searched = end
        return bytes(rest[start:cr]), end

    def _take(self, line: bytes, found: list[Frame]) -> None:
        if not line:
            if self._data:
                event = self._event.decode("utf-8", "replace") or "message"
                found.append(Frame(event, b"\n".join(self._data), self._number))
            self._event, self._number, self._size = b"", None, 0
            self._data = []
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._size += len(value) + 1
            if self._size > self._most:
                raise UnreadableError(f"a frame of its stream is over {self._most} bytes")
            self._data.append(value)
        elif name == b"event":
            self._event = value
        elif name == b"id":
            self._number = last_event_id(value.decode("ascii", "replace"))
