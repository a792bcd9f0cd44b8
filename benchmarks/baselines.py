"""Baselines: the least that a server of the same library must do for the same answer.

`python -m benchmarks.baselines KIND [ARGUMENT]` serves on a free port of loopback, which it prints.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

OPENAT2 = 437
RESOLVE_BENEATH = 0x08


def bytes_with_headers(head: str) -> Handler:
    """Answer prebuilt bytes with the headers of the real answer (JSON: {headers, body})."""
    given = orjson.loads(head)
    body = given["body"].encode()
    headers = {
        k: v
        for k, v in given["headers"].items()
        if k not in ("content-length", "date", "server", "connection")
    }

    async def handle(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, headers=headers)

    return handle


def parse_and_answer(answer: str) -> Handler:
    """Read the body, parse it, and answer a document of the same size with the same id."""
    document = orjson.loads(answer)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        call = orjson.loads(await request.read())
        return web.Response(
            body=orjson.dumps({**document, "id": call["id"]}), headers={"Content-Type": "application/json"}
        )

    return handle


def opened_beneath(path: str) -> Handler:
    """Open with openat2, one executor hop, read, hash, and a plain Response."""
    pool = ThreadPoolExecutor(4)
    libc = ctypes.CDLL(None, use_errno=True)
    directory, name = os.path.split(path)
    how = (ctypes.c_uint64 * 3)(os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, 0, RESOLVE_BENEATH)

    def read() -> tuple[bytes, str]:
        root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            found = libc.syscall(OPENAT2, root, name.encode(), ctypes.byref(how), ctypes.sizeof(how))
        finally:
            os.close(root)
        with os.fdopen(found, "rb", buffering=0) as file:
            os.fstat(found)
            data = file.read()
        return data, hashlib.sha256(data).hexdigest()

    async def handle(_request: web.BaseRequest) -> web.StreamResponse:
        data, digest = await asyncio.get_running_loop().run_in_executor(pool, read)
        return web.Response(
            body=data, headers={"Content-Type": "application/octet-stream", "ETag": f'"sha256:{digest}"'}
        )

    return handle


def file_response(path: str) -> Handler:
    """Serve it as aiohttp serves static files."""

    async def handle(_request: web.BaseRequest) -> web.StreamResponse:
        return web.FileResponse(path)

    return handle


def fan_out(frame: str) -> Handler:
    """Keep streams open, and write the frame to each of them whenever one posts its number to `/frame`."""
    rest = frame.encode().removeprefix(b"id: 1")
    streams: list[web.StreamResponse] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/frame":
            data = b"id: " + await request.read() + rest
            for stream in streams:
                await stream.write(data)
            return web.Response()
        opened = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        opened.enable_chunked_encoding()
        await opened.prepare(request)
        streams.append(opened)
        await asyncio.Event().wait()
        return opened

    return handle


KINDS = {
    "fanout": fan_out,
    "bytes": bytes_with_headers,
    "parse": parse_and_answer,
    "beneath": opened_beneath,
    "fileresponse": file_response,
}


async def serve(handler: Handler) -> None:
    """Serve until killed."""
    server = web.Server(handler)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, backlog=1024)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(KINDS[sys.argv[1]](sys.argv[2])))
