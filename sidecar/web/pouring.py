"""Sending an answer whose body comes in pieces: as fast as the client reads, whole or cut off."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from aiohttp.http import HttpVersion11

from sidecar.errors import RefusedError
from sidecar.model import Answer
from sidecar.web.answers import wire
from sidecar.web.reply import CLOSES, CONTINUES, CONTINUES_10, Sent, date_line, patiently

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.http import StreamWriter

    from sidecar.web.answers import Streamed
    from sidecar.web.connection import Connection


async def pour(request: web.BaseRequest, answer: Streamed) -> web.StreamResponse:
    """Send an answer, and close its body whatever happens.

    A body that turns out not to be what the head promised cuts the connection, so that the client sees less than
    the content length and never a whole answer that is wrong. Raises ConnectionError then, and when the client leaves.
    """
    connection = cast("Connection", request.protocol)
    writer = cast("StreamWriter", request.writer)
    body = answer.body
    start = b""
    try:
        keep = request.keep_alive and request.content.is_eof() and not connection.answers_its_last
        end = (CONTINUES if request.version == HttpVersion11 else CONTINUES_10) if keep else CLOSES
        head = wire(Answer(answer.status, answer.headers), length=body.length).head
        start = b"".join((head, date_line(int(time.time())), end))
        while piece := await body.next():
            await writer.write(start + piece, drain=False)
            start = b""
            if connection.writing_paused:
                await patiently(connection, writer)
        if start:
            await writer.write(start, drain=False)
    except RefusedError:
        if start:  # nothing is sent yet: a refusal can still be told
            raise
        connection.cut()
        raise ConnectionResetError("the rest of the body cannot be had") from None
    except ConnectionError:
        connection.cut()
        raise
    finally:
        body.close()
    return Sent(keep=keep)
