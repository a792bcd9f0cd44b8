"""The cards of one capsule's port, at their paths: each for its clients, all with validators."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.model import Manifest
from sidecar.web.forwarded import Proxies
from tests.support.port import Port, served
from tests.support.serving import bench

if TYPE_CHECKING:
    from pathlib import Path

REFERENCE = "/.well-known/agent-card.json"
OLDEST = "/.well-known/agent.json"
PURE_10 = "/a2a/.well-known/agent-card.json"
PURE_03 = "/a2a/v0.3/.well-known/agent-card.json"
PATHS = (REFERENCE, OLDEST, PURE_10, PURE_03)


async def card(port: Port, path: str, **headers: str) -> dict[str, Any]:
    """Return the card at a path."""
    answer = await port.get(path, **headers)
    assert answer.status == 200
    found: dict[str, Any] = json.loads(answer.body)
    return found


async def test_each_path_has_the_card_of_its_clients(tmp_path: Path) -> None:
    """The reference card with both versions' members; 0.3 alone at two paths; 1.0 alone."""
    async with served(tmp_path) as port:
        base = f"http://localhost:{port.number}"
        found = {path: await card(port, path) for path in PATHS}
        assert found[REFERENCE]["session_id"] == "ses_a"
        assert found[REFERENCE]["url"] == f"localhost:{port.number}"
        assert found[OLDEST] == found[PURE_03]
        assert found[PURE_03]["url"] == f"{base}/a2a/v0.3"
        assert "supportedInterfaces" not in found[PURE_03]
        assert [each["url"] for each in found[PURE_10]["supportedInterfaces"]] == [
            f"{base}/a2a/v1",
            f"{base}/a2a/v0.3",
        ]
        assert "url" not in found[PURE_10]


async def test_b38_every_url_of_a_card_answers_and_is_of_its_listener(tmp_path: Path) -> None:
    """B38: none contradicts the address that it is served on, and at none of them is nothing."""
    async with served(tmp_path) as port:
        for path in PATHS:
            written = json.dumps(await card(port, path))
            assert set(re.findall(r"localhost:(\d+)", written)) == {str(port.number)}
            urls = set(re.findall(r'"http://localhost:\d+(/[^"]*)"', written))
            assert urls
            for target in urls:
                assert (await port.get(target)).status != 404, target


@pytest.mark.parametrize("path", PATHS)
async def test_every_card_has_validators(tmp_path: Path, path: str) -> None:
    """Cache-Control with max-age, a strong ETag, Last-Modified; 304 for who has it; HEAD; no other method."""
    async with served(tmp_path) as port:
        whole = await port.get(path)
        assert whole.headers["content-type"] == "application/json"
        assert "max-age=" in whole.headers["cache-control"]
        etag = whole.headers["etag"]
        assert etag.startswith('"')
        for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            unchanged = await port.get(path, If_None_Match=known)
            assert (unchanged.status, unchanged.body) == (304, b"")
            assert unchanged.headers["etag"] == etag
        since = whole.headers["last-modified"]
        assert (await port.get(path, If_Modified_Since=since)).status == 304
        assert (await port.get(path, If_None_Match='"other"', If_Modified_Since=since)).status == 200
        head = await port.get(path, method="HEAD")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == str(len(whole.body))
        assert (await port.get(path + "?a=b")).body == whole.body
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            refused = await port.get(path, method=method)
            assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path",
    [
        "/a2a/v1/.well-known/agent-card.json",
        "/a2a/.well-known/agent.json",
        "/.well-known/agent-card.json/",
        "/.well-known/",
        "/.WELL-KNOWN/agent-card.json",
        "//.well-known/agent-card.json",
        "/a2a/../.well-known/agent-card.json",
    ],
)
async def test_no_other_path_has_a_card(tmp_path: Path, path: str) -> None:
    """A path means itself, byte for byte."""
    async with served(tmp_path) as port:
        assert (await port.get(path)).status == 404


async def test_a_change_shows_on_every_card(tmp_path: Path) -> None:
    """After a reload the cards that were kept are the new capsule's."""
    async with bench(tmp_path) as made:
        await made.serve(made.want("a"))
        port = Port(made, made.port("a"))
        before = {path: (await port.get(path)).headers["etag"] for path in PATHS}
        await made.serve(made.want("a", manifest=Manifest("a", "2"), public_url="https://x.example/{id}"))
        for path in PATHS:
            answer = await port.get(path, If_None_Match=before[path])
            assert answer.status == 200
            assert json.loads(answer.body)["version"] == "2"
        assert (await card(port, PURE_03))["url"] == "https://x.example/a/a2a/v0.3"


async def test_with_the_reference_card_alone_the_pure_cards_are_still_there(tmp_path: Path) -> None:
    """`card: reference` is about one card; who asks for the others knows what they are."""
    async with served(tmp_path, settings={"card": "reference"}) as port:
        assert len(await card(port, REFERENCE)) == 6
        assert (await card(port, PURE_03))["protocolVersion"] == "0.3.0"


FORWARDED = {"X_Forwarded_Host": "evil.example", "X_Forwarded_Proto": "https", "X_Forwarded_Prefix": "/x"}


async def test_nothing_is_taken_from_host_or_forwarded_headers(tmp_path: Path) -> None:
    """Whatever a client says of where it asks, the cards name the listener."""
    async with served(tmp_path) as port:
        plain = {path: await card(port, path) for path in PATHS}
        said = {**FORWARDED, "Host": "127.0.0.1:1", "Forwarded": "host=evil.example;proto=https"}
        for path in PATHS:
            assert await card(port, path, **said) == plain[path]


async def test_what_a_trusted_proxy_forwards_is_taken(tmp_path: Path) -> None:
    """Host, scheme and prefix of the client's own request; not what is malformed, nor where a public URL is set."""
    async with bench(tmp_path) as made:
        made.pool.policy.proxies = Proxies(("127.0.0.0/8",))
        await made.serve(made.want("a"), made.want("b", public_url="https://b.example"))
        port = Port(made, made.port("a"))
        assert (await card(port, PURE_03, **FORWARDED))["url"] == "https://evil.example/x/a2a/v0.3"
        assert (await card(port, PURE_10, **FORWARDED))["supportedInterfaces"][0]["url"] == (
            "https://evil.example/x/a2a/v1"
        )
        direct = f"http://localhost:{port.number}/a2a/v0.3"
        assert (await card(port, PURE_03))["url"] == direct
        for bad in (
            {"X_Forwarded_Host": "a b"},
            {"X_Forwarded_Proto": "ftp"},
            {"X_Forwarded_Prefix": "/<x>"},
        ):
            assert (await card(port, PURE_03, **{**FORWARDED, **bad}))["url"] == direct
        other = Port(made, made.port("b"))
        assert (await card(other, PURE_03, **FORWARDED))["url"] == "https://b.example/a2a/v0.3"
