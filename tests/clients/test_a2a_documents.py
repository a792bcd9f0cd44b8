"""Whatever the encoders write, the official SDKs' own types read, and read as it was meant."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.cards.a2a import card_03, card_10, root_card, root_url
from sidecar.cards.reference import card
from sidecar.dialects.a2a import REASONS
from sidecar.dialects.a2a03_server import A2A_03
from sidecar.dialects.a2a10_server import A2A_10
from tests.support.a2a_documents import CAPSULES, LENGTH, PAGES, SOME_PARTS, events, records
from tests.support.agents import environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.dialects.a2a_server import Dialect

READERS: Final = Path(__file__).parent / "agents"
EXAMPLES: Final = 50

Document = tuple[str, Any]


def collected(strategy: st.SearchStrategy[Any], write: Callable[[Any], list[Document]]) -> list[Document]:
    """Return what is written of many examples: they are read in one process, not in one each."""
    documents: list[Document] = []

    @settings(max_examples=EXAMPLES, database=None)
    @given(strategy)
    def write_all(example: Any) -> None:
        documents.extend((kind, orjson.loads(orjson.dumps(document))) for kind, document in write(example))

    write_all()
    return documents


def read(version: str, documents: list[Document]) -> list[Any]:
    """Return what the SDK of a version makes of documents; fails where it does not take one."""
    script = READERS / f"read_{version.replace('.', '')}.py"
    lines = "".join(json.dumps(document) + "\n" for document in documents)
    done = subprocess.run(
        [str(environment(version)), str(script)],
        input=lines,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(documents)
    for document, answer in zip(documents, answers, strict=True):
        assert "raised" not in answer, f"{answer['raised']} in {document}"
    return answers


def plain(value: Any) -> Any:
    """Return a document without what the types leave out because it says nothing: null, false, empty and zero.

    They are left out within the free-form members too, on both sides alike; so are zeros at the end of a time.
    """
    if isinstance(value, dict):
        found = {key: plain(item) for key, item in value.items()}
        if isinstance(at := found.get("timestamp"), str):
            found["timestamp"] = at.replace(".000Z", "Z")
        return {key: item for key, item in found.items() if item not in (None, False, "", 0, [], {})}
    return [plain(item) for item in value] if isinstance(value, list) else value


def check(version: str, documents: list[Document]) -> None:
    """Fail unless the SDK takes all documents, and finds in them what was written."""
    assert documents
    for (_, document), answer in zip(documents, read(version, documents), strict=True):
        assert plain(answer) == plain(document)


def answer(result: Any) -> Any:
    """Return a result in its envelope."""
    return {"jsonrpc": "2.0", "id": 1, "result": result}


def sent(dialect: Dialect) -> Callable[[Any], list[Document]]:
    """Return what writes the answers about a task, as the types of a version want them."""

    def write(example: Any) -> list[Document]:
        record, length, parts = example
        task, made = dialect.task(record, length), dialect.sent_task(record, length)
        message = dialect.sent_message(record, parts)
        if dialect is A2A_10:
            return [("task", task), ("send", made), ("send", message), ("stream", made), ("stream", message)]
        return [
            ("task", answer(task)),
            *((k, answer(m)) for k in ("send", "stream") for m in (made, message)),
        ]

    return write


def test_tasks_and_messages_of_0_3() -> None:
    """Results of sends, of getting a task, and what streams begin with."""
    check("0.3", collected(st.tuples(records(), LENGTH, SOME_PARTS), sent(A2A_03)))


def test_tasks_and_messages_of_1_0() -> None:
    """The same, with the types that the protocol is generated from; nothing unknown is in it."""
    check("1.0", collected(st.tuples(records(), LENGTH, SOME_PARTS), sent(A2A_10)))


def test_what_streams_show_in_0_3() -> None:
    """Every event that is shown is an update of one of the two kinds."""
    check(
        "0.3",
        collected(
            events(),
            lambda pair: [("stream", answer(r)) for r in A2A_03.event_results(pair[0], begun=pair[1])],
        ),
    )


def test_what_streams_show_in_1_0() -> None:
    """Likewise."""
    check(
        "1.0",
        collected(
            events(), lambda pair: [("stream", r) for r in A2A_10.event_results(pair[0], begun=pair[1])]
        ),
    )


def test_pages_of_tasks() -> None:
    """Which there are in 1.0 alone."""
    check("1.0", collected(PAGES, lambda page: [("list", A2A_10.listing(page))]))


def test_cards() -> None:
    """Each version reads its own card, and what is its own on the card of the second port and on the reference card."""
    check("0.3", collected(CAPSULES, lambda made: [("card", card_03(made))]))
    check("1.0", collected(CAPSULES, lambda made: [("card", card_10(made))]))
    both = collected(CAPSULES, lambda made: [("card", root_card(made, root_url(made))), ("card", card(made))])
    for (_, document), found in zip(both, read("0.3", both), strict=True):
        assert found.get("securitySchemes", {}).keys() == document.get("securitySchemes", {}).keys()
        if "securitySchemes" in found:
            assert found["securitySchemes"]["bearer"]["type"] == "http"
        assert found["additionalInterfaces"] == document["additionalInterfaces"]


def test_errors() -> None:
    """Every code of ours is an error of either version; the newer one says its reason in a detail that has a type."""
    older = [json.loads(A2A_03.error("a", code, "why")) for code in REASONS]
    newer = [json.loads(A2A_10.error(7, code, "why")) for code in REASONS]
    check("0.3", [("error", document) for document in older])
    details = [("detail", detail) for document in newer for detail in document["error"]["data"]]
    assert [found["reason"] for found in read("1.0", details)] == list(REASONS.values())
    assert {found["domain"] for found in read("1.0", details)} == {"a2a-protocol.org"}
    assert [(document["id"], document["error"]["code"]) for document in newer] == [
        (7, code) for code in REASONS
    ]
