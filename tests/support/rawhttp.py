"""Bytes over a real socket: requests that no client library would send."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """One parsed HTTP answer. Header names are lowercase."""

    status: int
    headers: dict[str, str]
    body: bytes


async def read_answer(reader: asyncio.StreamReader, *, head: bool = False) -> Answer:
    """Read one answer with a Content-Length, chunked, or up to the end of the connection."""
    start = await reader.readuntil(b"\r\n\r\n")
    status_line, *lines = start.decode("latin-1").split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
    status = int(status_line.split()[1])
    if head or status in (204, 304):
        return Answer(status, headers, b"")
    if "content-length" in headers:
        return Answer(status, headers, await reader.readexactly(int(headers["content-length"])))
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
        return Answer(status, headers, body)
    return Answer(status, headers, await reader.read())


async def exchange(port: int, request: bytes, *, host: str = "127.0.0.1", within: float = 10.0) -> Answer:
    """Send these bytes on a new connection and return the answer."""
    async with asyncio.timeout(within):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(request)
            return await read_answer(reader, head=request.startswith(b"HEAD "))
        finally:
            writer.close()
            await writer.wait_closed()


def request_bytes(
    method: str,
    target: str,
    *,
    host: str = "localhost",
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
) -> bytes:
    """Make a request whose target goes out exactly as given."""
    fields = {"Host": host, "Connection": "close", **(headers or {})}
    if body is not None:
        fields.setdefault("Content-Length", str(len(body)))
    head = "".join(f"{k}: {v}\r\n" for k, v in fields.items())
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + (body or b"")


async def get(
    port: int, target: str, *, method: str = "GET", headers: dict[str, str] | None = None
) -> Answer:
    """Send a bodiless request with a raw target."""
    return await exchange(port, request_bytes(method, target, headers=headers))
