"""The catalogs of the desk over HTTP, held to the public schemas; what they name is there."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.conftest import FIXTURES
from tests.support.a2a_clients import DRIVERS
from tests.support.agents import SCHEMAS
from tests.support.installed import from_pypi
from tests.support.spawned import running, write_capsule
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message
    from pathlib import Path

    from tests.support.spawned import Spawned

AI = "/.well-known/ai-catalog.json"
API = "/.well-known/api-catalog"
HOSTILE = '<script>alert(1)</script> "x" \u202e'


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the capsules are: namesakes, and one with a name that is not for URLs."""
    path: Path = tmp_path_factory.mktemp("capsules")
    for directory in ("alpha", "beta"):
        write_capsule(path / directory, name="same")
    write_capsule(path / "hostile", name="hostile")
    manifest = path / "hostile" / "murmur.yaml"
    manifest.write_text(manifest.read_text().replace("name: hostile", f"name: {json.dumps(HOSTILE)}"))
    return path


@pytest.fixture(scope="module")
def sidecar(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spawned]:
    """A sidecar that serves them."""
    with running(["--root", str(root)], state=tmp_path_factory.mktemp("state")) as spawned:
        until_sync(lambda: len(listed(spawned)) == 3, what="all are served")
        yield spawned


def get(url: str, method: str = "GET", **headers: str) -> tuple[int, Message, bytes]:
    """Send one request."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urlopen(Request(url, method=method, headers=given), timeout=10) as answer:
            return answer.status, answer.headers, answer.read()
    except HTTPError as error:
        return error.code, error.headers, error.read()


def catalog(sidecar: Spawned, path: str) -> dict[str, Any]:
    """Return a catalog."""
    status, _, body = get(sidecar.desk + path)
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def listed(sidecar: Spawned) -> list[dict[str, str]]:
    """Return the entries of the AI Catalog."""
    found: list[dict[str, str]] = catalog(sidecar, AI)["entries"]
    return found


@pytest.mark.parametrize(("path", "schema"), [(AI, "ai-catalog"), (API, "linkset")])
def test_a_catalog_keeps_to_its_schema(sidecar: Spawned, path: str, schema: str) -> None:
    """And what is nearly one does not: the check is one."""
    python = from_pypi("schemas", SCHEMAS)
    file = FIXTURES / "schemas" / f"{schema}.schema.json"

    def problems(document: Any) -> str:
        command = [str(python), str(DRIVERS / "schemas.py"), str(file)]
        given = json.dumps(document)
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    document = catalog(sidecar, path)
    assert problems(document) == ""
    if path == AI:
        document["entries"][0]["identifier"] = "urn:air:x:a~b"
    else:
        del document["linkset"][1]["status"][0]["href"]
    assert problems(document) != ""


def test_the_ai_catalog_names_each_card_of_a2a(sidecar: Spawned) -> None:
    """With the name in the manifest, whatever that is; behind each URL is that card."""
    entries = listed(sidecar)
    assert sorted(entry["displayName"] for entry in entries) == sorted(["same", "same", HOSTILE])
    assert len({entry["identifier"] for entry in entries}) == 3
    for entry in entries:
        assert list(entry) == ["identifier", "displayName", "type", "url"]
        assert entry["type"] == "application/a2a-agent-card+json"
        card = json.loads(get(entry["url"])[2])
        assert card["name"] == entry["displayName"]
        assert card["supportedInterfaces"][0]["protocolVersion"] == "1.0"


def test_the_api_catalog_leads_to_interfaces_and_their_descriptions(sidecar: Spawned) -> None:
    """Each item is described further down, and every description is there."""
    own, *apis = catalog(sidecar, API)["linkset"]
    assert own["anchor"] == sidecar.desk + API
    assert [item["href"] for item in own["item"]] == [api["anchor"] for api in apis]
    assert apis[0]["anchor"] == f"{sidecar.desk}/newmoi/agents/a2a"
    assert len(apis) == 1 + 2 * 3
    for api in apis:
        for target in (*api.get("service-desc", ()), *api.get("status", ())):
            status, headers, _ = get(target["href"])
            assert (status, headers["content-type"]) == (200, target["type"])


def test_catalogs_are_open_typed_and_known_by_their_tags(sidecar: Spawned) -> None:
    """RFC 9727: the profile, and the relation on `HEAD` too."""
    types = {
        AI: "application/ai-catalog+json",
        API: 'application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727"',
    }
    for path, kind in types.items():
        status, headers, body = get(sidecar.desk + path)
        assert (status, headers["content-type"], headers["cache-control"]) == (
            200,
            kind,
            "public, max-age=10",
        )
        status, again, _ = get(sidecar.desk + path, If_None_Match=headers["etag"])
        assert (status, again["etag"]) == (304, headers["etag"])
        status, head, nothing = get(sidecar.desk + path, "HEAD")
        assert (status, head["content-length"], nothing) == (200, str(len(body)), b"")
        assert get(sidecar.desk + path, "POST")[0] == 405
    _, head, _ = get(sidecar.desk + API, "HEAD")
    assert head["link"] == f'<{sidecar.desk}{API}>; rel="api-catalog"'


def test_a_catalog_follows_what_is_served(sidecar: Spawned, root: Path) -> None:
    """A capsule that comes is named, one that goes is not; and the tag is another."""
    before = get(sidecar.desk + AI)[1]["etag"]
    manifest = root / "late" / "murmur.yaml"
    write_capsule(root / "late")
    until_sync(lambda: "late" in [entry["displayName"] for entry in listed(sidecar)], what="it is named")
    assert get(sidecar.desk + AI)[1]["etag"] != before
    manifest.unlink()
    until_sync(lambda: len(listed(sidecar)) == 3, what="it is gone")
    assert get(sidecar.desk + AI)[1]["etag"] == before
