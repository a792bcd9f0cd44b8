"""The heads of requests in what arrives: where they end, and those whose method the parser does not know."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aiohttp.http import HttpRequestParser
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

if TYPE_CHECKING:
    from aiohttp import StreamReader, web
    from aiohttp.http import RawRequestMessage

END: Final = b"\r\n\r\n"
MOST_PIECES: Final = 64
"""Into how many pieces what arrives at once is cut; a body may be full of what looks like the end of a head."""

_STRANGE: Final = re.compile(rb"[\r\n]*([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}) [^ \r\n]+ HTTP/1\.[01]\r\n")
_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([0-9]{1,9})\r\n")
_POST: Final = b"POST "
_KNOWN: Final = b"POST"


def is_one_call(data: bytes) -> bool:
    """Whether data is the head of a POST with a plain `Content-Length`, and its whole body, and no more.

    What it cannot tell at a glance is none.
    """
    if not data.startswith(_POST):
        return False
    end = data.find(END) + len(END)
    length = _LENGTH.search(data, 0, end)
    return length is not None and int(length[1]) == len(data) - end


class Seam:
    """Finds the ends of heads; `left` is the end, at most three bytes, of a head that is incomplete so far."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = b""

    def end_of_head(self, data: bytes, start: int) -> int:
        """Return where a head ends that begins at `start` or before the data; the end of the data if it does not."""
        if self.left and not start:
            across = (self.left + data[:3]).find(END)
            if across >= 0:
                return across + len(END) - len(self.left)
        found = data.find(END, start)
        return len(data) if found < 0 else found + len(END)


def read_strange(
    head: bytes, connection: web.RequestHandler
) -> tuple[HttpRequestParser, tuple[RawRequestMessage, StreamReader]] | None:
    """Read a request that the parser refused for its method: RFC 9110 section 9.1 allows any token, with any case.

    Returns the parser to go on with, and the request with the method as it came; None where more is wrong with it,
    or the head did not come as a whole: such a request stays refused as it was.
    """
    line = _STRANGE.match(head)
    if line is None or not head.endswith(END):
        return None
    parser = HttpRequestParser(
        connection,
        connection._loop,  # noqa: SLF001 - what the library's own handler gives its parser
        connection._read_bufsize,  # noqa: SLF001
        max_line_size=connection.max_line_size,
        max_field_size=connection.max_field_size,
        max_headers=connection.max_headers,
        payload_exception=RequestPayloadError,
        auto_decompress=False,
        max_msg_queue_size=connection._max_msg_queue_size,  # noqa: SLF001
    )
    try:
        messages, upgraded, _ = parser.feed_data(_KNOWN + head[line.end(1) :])
    except HttpProcessingError:
        return None
    if upgraded or not messages:
        return None
    message, payload = messages[0]
    return parser, (message._replace(method=line[1].decode("ascii")), payload)
