"""The official A2A clients, unmodified, against a real sidecar: they find the card, and everything works."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.a2a_clients import CONFIG, JS, PYTHON, Client, opened, picture, run_all, story, texts
from tests.support.spawned import running
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.spawned import Spawned

    Results = dict[Client, dict[str, Any] | str]

CLIENTS = pytest.mark.parametrize(
    "client",
    [*PYTHON, *(pytest.param(client, marks=pytest.mark.machine) for client in JS)],
    ids=str,
)
CODES = {
    "TaskNotFoundError": -32001,
    "TaskNotCancelableError": -32002,
    "PushNotificationNotSupportedError": -32003,
    "UnsupportedOperationError": -32004,
    "InvalidParamsError": -32602,
    "RequestMalformedError": -32602,
}
"""What the clients of 1.0 make of codes; the last is JavaScript's."""
TASKS_OF_A_CLIENT = {"completed": 11, "canceled": 1, "failed": 1}
"""What becomes of the tasks of one driver's scenarios; a reply that is a message is one of them."""


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spawned]:
    """A sidecar that serves the capsules of these tests."""
    with running(["--config", str(CONFIG)], state=tmp_path_factory.mktemp("state")) as spawned:
        yield spawned


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, sidecar: Spawned, tmp_path_factory: pytest.TempPathFactory
) -> Results:
    """What each client that a test was chosen for saw: all of them ran side by side."""
    chosen: list[Client] = []
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.module is request.module and hasattr(item, "callspec"):
            client = item.callspec.params["client"]
            assert isinstance(client, Client)
            chosen.append(client)
    url = f"http://localhost:{sidecar.port('obedient')}"
    return run_all(list(dict.fromkeys(chosen)), url, tmp_path_factory.mktemp("gates"))


@pytest.fixture
def seen(results: Results, client: Client) -> dict[str, Any]:
    """What one client saw."""
    found = results[client]
    assert isinstance(found, dict), found
    return found


@CLIENTS
def test_a_client_finds_the_card(seen: dict[str, Any]) -> None:
    """It is found where every client looks, and says what each version needs."""
    card = seen["card"]
    assert (card["name"], card["version"], card["description"]) == (
        "obedient",
        "1.0.0",
        "Does what it is told",
    )
    assert card["capabilities"]["streaming"] is True
    assert [skill["id"] for skill in card["skills"]] == ["task"]
    assert (card["defaultInputModes"], card["defaultOutputModes"]) == (["text/plain"], ["text/plain"])


@CLIENTS
def test_a_send_waits_for_its_task(seen: dict[str, Any]) -> None:
    """The answer is the finished task, which a look shows again; history goes along unless it is unwanted."""
    whole = {"state": "completed", "artifacts": {"response": "0 1 2 "}, "history": [("user", "count 3")]}
    assert picture(seen["send"]) == whole
    assert picture(seen["get"]) == whole
    assert picture(seen["get without history"]) == {**whole, "history": []}
    assert picture(seen["at once"]) == whole
    assert picture(seen["failed"])["state"] == "failed"


@CLIENTS
def test_a_reply_can_be_a_message(seen: dict[str, Any]) -> None:
    """Where a worker answers with a message, that is what comes of the call."""
    kind, message = opened(seen["reply"])
    assert (kind, texts(message["parts"])) == ("message", "just so")


@CLIENTS
def test_a_stream_tells_everything_in_order(seen: dict[str, Any]) -> None:
    """It begins with the task and ends with its end; every kind of part arrives."""
    assert story(seen["stream"]) == [["task", ""], ["response", "0 1 2 "], ["completed", ""]]
    assert story(seen["artifacts"]) == [
        ["task", ""],
        ["working", "at it"],
        ["report", "one two"],
        ["file", [{"raw": "AAE="}]],
        ["link", [{"url": "https://example.com/a.txt"}]],
        ["data", [{"data": {"a": 1}}]],
        ["response", "made it"],
        ["completed", ""],
    ]


@CLIENTS
def test_a_question_is_answered(seen: dict[str, Any], client: Client) -> None:
    """The prompt is the message of the status; input goes to the task that asked."""
    asked = [["task", ""], ["input-required", "who?"]]
    rest = [["response", "you said Ada"], ["completed", ""]]
    assert story(seen["asked"]) == (asked + rest if client.version == "1.0" else asked)
    answered = picture(seen["answered"])
    assert answered["state"] == "completed"
    assert answered["artifacts"] == {"response": "you said Ada"}
    assert answered["history"] == [("user", "ask"), ("agent", "who?"), ("user", "Ada")]


@CLIENTS
def test_a_task_is_canceled(seen: dict[str, Any]) -> None:
    """The answer is the canceled task."""
    assert picture(seen["cancel"])["state"] == "canceled"


@CLIENTS
def test_a_client_that_left_comes_back(seen: dict[str, Any]) -> None:
    """Its task went on; the second stream begins with the task as it is and ends with the end."""
    assert story(seen["left"])[:2] == [["task", ""], ["response", "begun"]]
    first, *rest = seen["again"]
    assert picture(first)["artifacts"] == {"response": "begun"}
    assert story(rest) == [["response", " done"], ["completed", ""]]
    assert picture(seen["got"])["artifacts"] == {"response": "begun done"}


@CLIENTS
def test_silence_kills_no_client(seen: dict[str, Any]) -> None:
    """A task that says nothing for longer than a client waits for a byte ends as any other."""
    assert story(seen["silent stream"]) == [["task", ""], ["response", "at last"], ["completed", ""]]
    assert picture(seen["silent send"])["artifacts"] == {"response": "at last"}


@CLIENTS
def test_a_refusal_is_the_error_that_the_client_knows(seen: dict[str, Any], client: Client) -> None:
    """Clients of 1.0 make an exception of their own of each code, those of 0.3 keep the code with it."""
    assert {name: CODES.get(error, error) for name, error in seen["errors"].items()} == {
        "get": -32001,
        "cancel": -32002,
        "subscribe": -32004,
        "send": -32004,
        "context": -32602,
        "push": -32003,
    }
    if client.version == "1.0":
        assert seen["listed"] == [True]


def test_nobody_who_left_took_a_task_along(sidecar: Spawned, results: Results) -> None:
    """Abandoned streams and calls cost no task, and nothing of all that is in the log as a warning or an error."""
    expected = {state: count * len(results) for state, count in TASKS_OF_A_CLIENT.items()}

    def states() -> Counter[str]:
        return Counter(task["state"] for task in sidecar.api("/api/capsules/obedient/tasks")["tasks"])

    until_sync(lambda: states() == expected, what=f"tasks {expected}")
    assert [line for line in sidecar.log if line["level"] not in ("info", "debug")] == []
