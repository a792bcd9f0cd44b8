"""How the command line prints: one plain line for an error, tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from sidecar.errors import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TextIO


class Watched:
    """Standard output, which remembers why it took nothing any more (`trouble`): not all who print look at that."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.trouble: OSError | None = None

    def write(self, text: str) -> int:
        """Write like the stream itself. Raises OSError."""
        try:
            return self.stream.write(text)
        except OSError as error:
            self.trouble = error
            raise

    def flush(self) -> None:
        """Flush like the stream itself. Raises OSError."""
        try:
            self.stream.flush()
        except OSError as error:
            self.trouble = error
            raise

    def finish(self) -> None:
        """Flush for the last time; what is not taken is dropped, so that the interpreter does not complain at its end."""
        try:
            self.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def complain(message: str) -> None:
    """Write an error as one plain line to standard error; in the journal it is one of that priority (sd-daemon(3))."""
    mark = ""
    if "JOURNAL_STREAM" in os.environ:
        from sidecar.ops.journal import leads_there

        mark = "<3>" if leads_there(sys.stderr.buffer, os.environ) else ""
    sys.stderr.write(f"{mark}sidecar: {visible(message)}\n")


def print_lines(lines: Iterable[str]) -> None:
    """Print lines to standard output, control characters made visible."""
    for line in lines:
        print(visible(line))


def print_json(value: Any) -> None:
    """Print a JSON document to standard output, indented."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lay out rows in columns as wide as their widest cell; the last column is left as it is."""
    cells = [tuple(head), *(tuple(visible(cell) for cell in row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
