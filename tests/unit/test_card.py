"""The reference card: what is on it, and where each thing comes from."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from sidecar.cards.reference import card, card_bytes, card_document
from sidecar.manifest.load import load
from sidecar.model import (
    METHODS,
    AuthKind,
    Capsule,
    Lifecycle,
    Manifest,
    Settings,
    TaskAcceptance,
    served_methods,
)
from tests.conftest import FIXTURES

GOLDEN = Path(__file__).parents[1] / "golden" / "cards"
SESSION = "ses_019f01a940ce7761854e768ecbe3d399"
REFERENCE = ["name", "version", "url", "session_id", "capabilities", "serves"]


def capsule(
    manifest: Manifest | None = None, credentials: tuple[AuthKind, ...] = (), **settings: Any
) -> Capsule:
    """Make a served capsule."""
    return Capsule(
        id="my-agent",
        directory="/c/my-agent",
        session_id=SESSION,
        manifest=manifest or Manifest("my-agent", "0.1.0"),
        settings=Settings(**settings),
        workspace="/c/my-agent",
        changed_at=1_000_000_000.75,
        port=24000,
        credentials=credentials,
    )


def manifest_of(path: Path) -> Manifest:
    """Load a manifest that must be a good one."""
    found = load(path.read_bytes(), file=path.name, max_bytes=1 << 20)
    assert found.manifest is not None, found.problems
    return found.manifest


@pytest.mark.parametrize("kind", ["full", "reference"])
@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.yaml")))
def test_a_card_is_what_its_golden_file_says(name: str, kind: str) -> None:
    """Manifest above, card below; key order counts."""
    made = card(capsule(manifest_of(GOLDEN / f"{name}.yaml"), card=kind))
    assert json.dumps(made, indent=2, ensure_ascii=False) + "\n" == (
        GOLDEN / f"{name}.{kind}.json"
    ).read_text(encoding="utf-8")


def test_the_reference_card_has_exactly_the_keys_of_the_reference() -> None:
    """`card: reference` serves six keys, four capabilities and two kinds of service, in order."""
    made = card(capsule(card="reference"))
    assert list(made) == REFERENCE
    assert list(made["capabilities"]) == ["tools", "shell", "network", "streaming"]
    assert list(made["serves"]) == ["methods", "planes"]


def test_the_full_card_begins_with_the_reference_card() -> None:
    """A client of the reference finds its keys first, unchanged."""
    full, reference = card(capsule()), card(capsule(card="reference"))
    assert list(full)[:6] == REFERENCE
    assert full == full | reference


@pytest.mark.parametrize("acceptance", TaskAcceptance)
def test_b36_streaming_agrees_with_the_methods(acceptance: TaskAcceptance) -> None:
    """B36: streaming is on the card exactly when `message/stream` is; both come from the table that dispatches."""
    manifest = Manifest("a", "1", lifecycle=Lifecycle(task_acceptance=acceptance))
    made = card(capsule(manifest))
    methods = made["serves"]["methods"]
    assert made["capabilities"]["streaming"] is ("message/stream" in methods)
    assert methods == [m.name for m in served_methods(acceptance)]
    assert methods == [m.name for m in METHODS if m.name in methods]


def test_an_accepting_capsule_lists_all_six_methods() -> None:
    """Card case: acceptance queue, no exports."""
    made = card(capsule(Manifest("a", "1", lifecycle=Lifecycle(task_acceptance=TaskAcceptance.QUEUE))))
    assert made["serves"] == {
        "methods": [
            "message/send",
            "message/stream",
            "stream/watch",
            "tasks/get",
            "tasks/cancel",
            "session/stop",
        ],
        "planes": [],
    }
    assert made["capabilities"] == {"tools": [], "shell": False, "network": False, "streaming": True}


def test_a_capsule_that_takes_none_lists_what_starts_no_task() -> None:
    """Card case: `none`."""
    made = card(capsule(Manifest("a", "1", lifecycle=Lifecycle(task_acceptance=TaskAcceptance.NONE))))
    assert made["serves"]["methods"] == ["stream/watch", "tasks/get", "tasks/cancel", "session/stop"]
    assert made["capabilities"]["streaming"] is False
    assert made["skills"] == []


def test_b38_the_card_names_the_port_it_is_served_on_and_no_other() -> None:
    """B38: every address on the card is the listener's own, by its advertised name."""
    made = card(capsule())
    assert made["url"] == "localhost:24000"
    assert set(re.findall(r"localhost:\d+", json.dumps(made))) == {"localhost:24000"}
    assert card(capsule(advertise="agents.example"))["url"] == "agents.example:24000"
    assert card(capsule(advertise="2001:db8::7"))["url"] == "[2001:db8::7]:24000"
    assert "0.0.0.0" not in json.dumps(card(capsule(hosts=("0.0.0.0",))))


@pytest.mark.parametrize(
    "path",
    sorted((FIXTURES / "manifests" / "capsules").glob("*/murmur.yaml")),
    ids=lambda path: path.parent.name,
)
def test_every_real_manifest_has_a_card(path: Path) -> None:
    """Manifests from public documentation give cards with the types of the reference."""
    made = json.loads(card_bytes(capsule(manifest_of(path))))
    assert all(isinstance(made[key], str) and made[key] for key in REFERENCE[:4])
    assert all(isinstance(tool, str) for tool in made["capabilities"]["tools"])
    assert all({"id", "name", "description", "tags"} == skill.keys() for skill in made["skills"])


def test_the_document_of_a_card_has_strong_validators() -> None:
    """ETag and Last-Modified follow the content; both answers carry them, and how long a copy may be kept."""
    made = card_document(capsule())
    for answer in (made.whole, made.unchanged):
        assert f"etag: {made.etag}\r\n".encode() in answer.head
        assert b"cache-control: public, max-age=10\r\n" in answer.head
        assert b"last-modified: Sun, 09 Sep 2001 01:46:40 GMT\r\n" in answer.head
    assert made.etag.startswith('"')
    assert (made.whole.status, made.unchanged.status) == (200, 304)
    assert (made.whole.body, made.unchanged.body) == (card_bytes(capsule()), b"")
    assert parsedate_to_datetime("Sun, 09 Sep 2001 01:46:40 GMT").timestamp() == 1_000_000_000


def test_b37_another_card_has_another_tag_and_the_same_card_the_same() -> None:
    """B37: a client can tell a new card from the one it holds."""
    first = card_document(capsule())
    assert card_document(capsule()).etag == first.etag
    other = card_document(replace(capsule(), port=24001))
    assert other.etag != first.etag
    assert first.answer(first.etag) is first.unchanged
    assert other.answer(first.etag) is other.whole
