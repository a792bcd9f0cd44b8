"""Raw targets that no client library would send, to the planes of a served capsule, over its socket."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import orjson
import pytest

from sidecar.model import Containment, FilesExport, Manifest, PeerFilesExport
from tests.support import swapper
from tests.support.attack import prepare
from tests.support.planes import SECRET, SECRET_SHA
from tests.support.rawhttp import Answer, read_answer
from tests.support.serving import bench

if TYPE_CHECKING:
    from pathlib import Path

FILES = b"/resources/files/"
OUTSIDE, MISSING, MALFORMED = (403, "outside_root"), (404, "not_found"), (400, "malformed_handle")
LEAVING = [
    b"../outside/f",
    b"../../outside/f",
    b"dir/../../outside/f",
    b"dir/../file",
    b"./file",
    b"dir/./f",
    b"dir//f",
    b"/etc/passwd",
    b"//etc/passwd",
    b"/" * 100,
    b"..",
    b".",
    b"...%2f..",
    b"%2e%2e/outside/f",
    b"%2E%2E/outside/f",
    b".%2e/outside/f",
    b"%2e%2e%2foutside%2ff",
    b"..%2foutside/f",
    b"..%2Foutside%2Ff",
    b"%2fetc%2fpasswd",
    b"%00",
    b"file%00",
    b"file%00/../../outside/f",
    b"%00../outside/f",
    b"%ff",
    b"file%80",
    b"%c0%ae%c0%ae/outside/f",
    b"%c0%af",
    b"%e0%80%ae%e0%80%ae/outside/f",
    b"%ed%a0%80",
    b"dir/../%2e%2e/outside/f",
    b"../w/root/file",
    b"../root/file",
    b"../root-secret/f",
]
"""Each would leave the root, or is no path at all: refused by its shape, before anything is looked at."""
NOWHERE = [
    b"..\\outside\\f",
    b"..%5coutside%5cf",
    b"%252e%252e/outside/f",
    b"%252e%252e%252foutside%252ff",
    b"..%252foutside/f",
    b"%u002e%u002e/outside/f",
    b"..;/outside/f",
    b"..%3b/outside/f",
    b"..%20/outside/f",
    b"%20../outside/f",
    b".../outside/f",
    b"....//outside/f".replace(b"//", b"/"),
    b"file/f",
    b"file%2ff",
    b"~root/.ssh/id_rsa",
    b"C:/windows/win.ini",
    b"file:///etc/passwd".replace(b"///", b"/"),
    b"proc/self/environ",
    b"%ef%bc%8e%ef%bc%8e/outside/f",
    b"%e2%80%a5/outside/f",
    b"n" * 256,
    b"d/" * 3000 + b"f",
    b"%",
    b"%zz",
    b"%2",
]
"""Each means a name below the root, and there is none."""
REFUSED = [
    b"GET http://localhost" + FILES + b"../outside/f HTTP/1.1",
    b"GET http://evil.example" + FILES + b"file HTTP/1.1",
    b"GET \\resources\\files\\..\\outside HTTP/1.1",
    b"GET resources/files/file HTTP/1.1",
    b"GET " + FILES + b"\xff\xfe HTTP/1.1",
    b"GET " + FILES + b"a\x00b HTTP/1.1",
    b"GET " + FILES + b"a b HTTP/1.1",
    b"GET " + FILES + b"a\tb HTTP/1.1",
    b"GET " + FILES + b"file#../outside/f HTTP/1.1",
    b"GET /resources/files/../../outside/f#x HTTP/1.1",
    b"GET * HTTP/1.1",
    b"CONNECT " + FILES + b"file HTTP/1.1",
]
"""Requests that are none: refused as such, whatever their target means."""
HANDLES = [
    b"../outside/f",
    b"report.md",
    b"mh1..",
    b"%2e%2e/f",
]
DIRECT = [
    b"/resources/../resources/files/file",
    b"/resources/files/..",
    b"//resources/files/file",
    b"/resources/files%2ffile",
]


async def ask(port: int, line: bytes) -> Answer:
    """Send a request line as it stands, and return the answer."""
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(
                line + b"\r\nHost: localhost\r\nx-murmur-audience: a@b:1\r\nConnection: close\r\n\r\n"
            )
            return await read_answer(reader)
        finally:
            writer.close()
            await writer.wait_closed()


def told(answer: Answer) -> tuple[int, str]:
    """Return status and code of a refusal, which must have the one shape and no word of this machine."""
    document = orjson.loads(answer.body)
    assert list(document) == ["error", "message"]
    assert "/w/" not in document["message"]
    return answer.status, document["error"]


def get(target: bytes) -> bytes:
    """Return the line of a request."""
    return b"GET " + target + b" HTTP/1.1"


def manifest(containment: Containment) -> Manifest:
    """Return a manifest with both planes on one root."""
    return Manifest(
        "w",
        "1",
        containment=containment,
        files=FilesExport("root/"),
        peer_files=PeerFilesExport("root/"),
    )


@pytest.mark.parametrize("containment", list(Containment))
async def test_every_raw_target_gets_its_refusal(tmp_path: Path, containment: Containment) -> None:
    """By the code of its kind, over the whole way from the socket to the file, and never a byte from outside."""
    prepare(tmp_path)
    async with bench(tmp_path) as made:
        await made.serve(made.want("w", manifest=manifest(containment)))
        port = made.port("w")
        assert (await ask(port, get(FILES + b"file"))).body == b"inside"
        for rest in LEAVING:
            assert told(await ask(port, get(FILES + rest))) == OUTSIDE, rest
        for rest in NOWHERE:
            assert told(await ask(port, get(FILES + rest))) == MISSING, rest
        for line in REFUSED:
            assert told(await ask(port, line))[0] in (400, 404, 405), line
        for rest in HANDLES:
            assert told(await ask(port, get(b"/resources/peer/" + rest))) == MALFORMED, rest
        for rest in (b"mh1.YWJj.YWJj", b"mh1." + b"A" * 4000 + b".AAAA"):
            assert told(await ask(port, get(b"/resources/peer/" + rest))) == (403, "handle_not_valid"), rest
        for target in DIRECT:
            assert told(await ask(port, get(target))) in (MISSING, OUTSIDE), target


async def test_no_raw_target_gets_a_byte_from_outside_while_everything_is_swapped(tmp_path: Path) -> None:
    """A neighbour swaps files, directories and the root for links meanwhile, in each class of containment."""
    workspace = prepare(tmp_path)
    async with bench(tmp_path) as made:
        neighbour = await asyncio.create_subprocess_exec(
            sys.executable, swapper.__file__, str(workspace), stdin=asyncio.subprocess.PIPE
        )
        try:
            for containment in Containment:
                await made.serve(made.want("w", manifest=manifest(containment)))
                port = made.port("w")
                rests = [
                    *LEAVING,
                    *NOWHERE,
                    b"file",
                    b"dir/f",
                    b"deep/a/f",
                    b"link/f",
                    b"deep/a/up/dir/f",
                    b"",
                ]
                answers = [
                    answer
                    for start in range(0, len(rests), 8)
                    for answer in await asyncio.gather(
                        *(ask(port, get(FILES + rest)) for rest in rests[start : start + 8])
                    )
                ]
                for rest, answer in zip(rests, answers, strict=True):
                    seen = answer.body + "".join(answer.headers.values()).encode()
                    assert SECRET not in seen, rest
                    assert SECRET_SHA.encode() not in seen, rest
                    assert rest not in LEAVING or told(answer) == OUTSIDE
            assert neighbour.returncode is None
        finally:
            assert neighbour.stdin is not None
            neighbour.stdin.close()
            await neighbour.wait()
        assert neighbour.returncode == 0
