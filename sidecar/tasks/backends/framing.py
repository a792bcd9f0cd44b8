"""From the bytes that a command writes to what it says of its task. Pure; one object per run of a command."""

from __future__ import annotations

import codecs
from typing import Final, Protocol

from sidecar.tasks.said import NotSaidError, Said, Text, read_line

LONGEST_LINE: Final = 16 * 1024 * 1024
"""Bytes of one line."""


class TooLongError(Exception):
    """A line is longer than any may be."""

    def __init__(self) -> None:
        super().__init__(f"a line of its output is over {LONGEST_LINE} bytes")


class Framing(Protocol):
    """How the output of a command is read."""

    def feed(self, data: bytes) -> list[Said]:
        """Take in the next bytes and return what they complete. Raises TooLongError."""

    def end(self) -> list[Said]:
        """Return what is left at the end of the output."""


class Plain:
    """The protocol `text`: all of it is the reply, in UTF-8; what is no UTF-8 is replaced."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> list[Said]:
        """Take in the next bytes; a character may be split between two reads."""
        text = self._decoder.decode(data)
        return [Text(text)] if text else []

    def end(self) -> list[Said]:
        """Return what a cut-off character at the end comes to."""
        text = self._decoder.decode(b"", final=True)
        return [Text(text)] if text else []


class Lines:
    """The protocol `jsonl`: one object a line; a line that is none of the vocabulary is text."""

    def __init__(self) -> None:
        self._started = bytearray()

    def feed(self, data: bytes) -> list[Said]:
        """Take in the next bytes and return what the lines say that end in them."""
        *ended, started = data.split(b"\n")
        if ended:
            ended[0] = bytes(self._started) + ended[0]
            self._started = bytearray(started)
        else:
            self._started += started
        if len(self._started) > LONGEST_LINE or any(len(line) > LONGEST_LINE for line in ended):
            raise TooLongError
        return [_said(line, b"\n") for line in ended]

    def end(self) -> list[Said]:
        """Return what the last line says, where it lacks its end."""
        rest, self._started = bytes(self._started), bytearray()
        return [_said(rest, b"")] if rest else []


def framing(protocol: str) -> Framing:
    """Return how output is read under `command.protocol`."""
    return Lines() if protocol == "jsonl" else Plain()


def _said(line: bytes, ending: bytes) -> Said:
    try:
        return read_line(line)
    except NotSaidError:
        return Text((line + ending).decode("utf-8", "replace"))
