"""What the page asks of a running sidecar: the link, cards, files, and streams that begin a few frames back."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import pty
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.support import spawned
from tests.support.rawhttp import request_bytes
from tests.support.spawned import Spawned, running, start, write_capsule
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from pathlib import Path


def ask(sidecar: Spawned, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Ask the desk with the admin token; return status, headers and body."""
    token = (sidecar.state / "admin.token").read_text().strip()
    request = Request(sidecar.desk + path, headers={"Authorization": f"Bearer {token}", **headers})
    try:
        with urlopen(request, timeout=10) as answer:
            return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
    except HTTPError as error:
        with error:
            return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read()


def test_a_link_is_printed_by_the_command_and_opens_the_page_once(sidecar: Spawned) -> None:
    """`sidecar link`, as text and as JSON; each time another one."""
    printed = spawned.sidecar("link", "--state", str(sidecar.state))
    told = json.loads(spawned.sidecar("link", "--state", str(sidecar.state), "--json").stdout)
    assert printed.returncode == 0
    base, _, token = printed.stdout.strip().partition("#link=")
    assert (base, told["expires_in"]) == (sidecar.desk + "/", 60)
    assert told["url"] != printed.stdout.strip()
    request = Request(
        sidecar.desk + "/page/sign-in",
        data=json.dumps({"link": token}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urlopen(request, timeout=10) as answer:
        assert "HttpOnly" in answer.headers["set-cookie"]
    with pytest.raises(HTTPError) as refused:
        urlopen(request, timeout=10)
    with refused.value as error:
        assert error.code == 401


def test_a_link_is_for_a_terminal_alone(root: Path, tmp_path: Path) -> None:
    """Where `run` prints to one it prints a link; what it logs, and prints elsewhere, never holds one."""
    master, slave = pty.openpty()
    seen = start(["--root", str(root)], state=tmp_path / "state", stdout=slave)
    os.close(slave)
    try:
        seen.event("ready")
        text = os.read(master, 4096).decode()
        assert f"{seen.desk}/#link=" in text
    finally:
        seen.stop()
        os.close(master)
    assert [line for line in seen.raw if "#link=" in line] == []


def test_nothing_is_printed_where_nobody_looks(root: Path, tmp_path: Path) -> None:
    """Into a pipe `run` prints nothing."""
    read, write = os.pipe()
    seen = start(["--root", str(root)], state=tmp_path / "state", stdout=write)
    os.close(write)
    seen.event("ready")
    seen.stop()
    with os.fdopen(read, "rb") as output:
        assert output.read() == b""


def test_cards_are_shown_as_clients_see_them(sidecar: Spawned) -> None:
    """Each with the address at which the very same document is served, and known again by its tag."""
    sidecar.port("a")
    status, headers, body = ask(sidecar, "/api/capsules/a/cards")
    assert status == 200
    cards = {card["view"]: card for card in json.loads(body)["cards"]}
    assert list(cards) == ["murmur", "a2a 1.0", "a2a 0.3", "everruns", "moi"]
    for card in cards.values():
        with urlopen(card["url"], timeout=10) as answer:
            assert json.load(answer) == card["card"]
    assert ask(sidecar, "/api/capsules/a/cards", **{"If-None-Match": headers["etag"]})[0] == 304
    assert ask(sidecar, "/api/capsules/none/cards")[0] == 404


def test_files_are_shown_to_the_operator_and_run_nowhere(sidecar: Spawned, root: Path) -> None:
    """The plane's own answers, its refusals too, with headers that keep a browser from making anything of them."""
    page = b"<script>alert(1)</script>"
    (root / "a" / "out" / "b c").mkdir(parents=True)
    (root / "a" / "out" / "b c" / "x.html").write_bytes(page)
    port = sidecar.port("a")
    status, _, body = ask(sidecar, "/api/capsules/a/files")
    with urlopen(f"http://127.0.0.1:{port}/resources/files", timeout=10) as answer:
        assert (status, body) == (200, answer.read())
    status, headers, body = ask(sidecar, "/api/capsules/a/files/b%20c/x.html")
    assert (status, body) == (200, page)
    assert headers["etag"] == f'"sha256:{hashlib.sha256(page).hexdigest()}"'
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-type"].split(";")[0] not in ("text/html", "image/svg+xml")
    assert ask(sidecar, "/api/capsules/a/files/b%20c/x.html", **{"If-None-Match": headers["etag"]})[0] == 304
    for path, refused in (("/..%2f..%2fmurmur.yaml", 403), ("/none", 404), ("/b%20c", 403)):
        assert ask(sidecar, "/api/capsules/a/files" + path)[0] == refused


def test_a_big_file_comes_in_pieces(sidecar: Spawned, root: Path) -> None:
    """As it does on the plane itself."""
    big = os.urandom(3 * 1024 * 1024)
    (root / "a" / "out").mkdir(parents=True)
    (root / "a" / "out" / "big").write_bytes(big)
    sidecar.port("a")
    status, headers, body = ask(sidecar, "/api/capsules/a/files/big")
    assert (status, headers["content-length"], body) == (200, str(len(big)), big)


def test_what_is_not_served_has_no_cards_and_no_files(root: Path, tmp_path: Path) -> None:
    """503 for a capsule whose manifest was never good."""
    write_capsule(root / "bad", acceptance="sometimes")
    with running(["--root", str(root)], state=tmp_path / "state") as sidecar:
        until_sync(lambda: "bad" in sidecar.capsules(), what="the bad capsule in the list")
        for what in ("cards", "files", "files/x"):
            status, _, body = ask(sidecar, f"/api/capsules/bad/{what}")
            assert (status, json.loads(body)["error"]) == (503, "unavailable")


async def test_a_stream_begins_so_many_frames_back(sidecar: Spawned) -> None:
    """`?tail=`: the newest frames and then what comes; without it everything that is kept."""
    sidecar.port("a")
    token = (sidecar.state / "admin.token").read_text().strip()
    base = "/api/capsules/a"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    port = int(sidecar.desk.rpartition(":")[2])
    ids = []
    async with asyncio.timeout(20):
        for _ in range(3):
            body = json.dumps({"text": "x"}).encode()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_bytes("POST", f"{base}/messages", headers=headers, body=body))
            answer = await reader.read()
            writer.close()
            ids.append(json.loads(answer.partition(b"\r\n\r\n")[2])["id"])
        for task in ids:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_bytes("POST", f"{base}/tasks/{task}/cancel", headers=headers, body=b""))
            await reader.read()
            writer.close()
        for query, first in (
            ("?tail=1", ids[2]),
            ("?tail=2", ids[1]),
            ("?tail=99999999", ids[0]),
            ("", ids[0]),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_bytes("GET", f"{base}/stream{query}", headers=headers))
            seen = await reader.readuntil(f'"{ids[2]}"'.encode())
            assert seen.find(first.encode()) >= 0
            assert [task for task in ids[: ids.index(first)] if task.encode() in seen] == []
            writer.close()
