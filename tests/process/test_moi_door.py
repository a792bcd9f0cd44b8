"""The shared door of the MOI view over HTTP: sends, tasks with their states, numbered streams that are taken up again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.moi import DOOR, KEYS, OTHER, TEAM, Home, home, message, problem
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.everruns import Frame, Stream
    from tests.support.moi import Client

AUTH = KEYS % ("0" * 64)
NOT_FOUND = -32001
UNSUPPORTED = -32004


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A sidecar whose view wants keys."""
    with home(tmp_path_factory.mktemp("home"), auth=AUTH) as made:
        yield made


@pytest.fixture(scope="module")
def team(here: Home) -> Client:
    """A client with a key of `team`."""
    return here.client().using(moi_key=TEAM)


def ended(client: Client, task_id: str, agent: str = "known") -> dict[str, Any]:
    """Wait until a task is over, and return it."""

    def over() -> dict[str, Any] | None:
        task = client.result("tasks/get", {"id": task_id}, agent_id=agent)
        return task if task["status"]["state"] in ("completed", "failed", "rejected", "canceled") else None

    task = until_sync(over, what="the task is over")
    assert task is not None
    return task


def states(task: dict[str, Any]) -> list[str]:
    """Return where a task stood, in order; each with the form of time that A2A has."""
    found = task["metadata"]["stateTransitions"]
    assert all(list(one) == ["state", "timestamp"] for one in found)
    times = [one["timestamp"] for one in found]
    assert times == sorted(times)
    assert all(len(time) == len("2026-01-31T12:00:00.000Z") for time in times)
    return [one["state"] for one in found]


def shown(frames: list[Frame]) -> list[tuple[int, str, str]]:
    """Return number, kind and state or text of frames, which must be those of one answer."""
    told = []
    for frame in frames:
        assert frame.event == "message"
        assert (frame.data["jsonrpc"], frame.data["id"]) == ("2.0", 7)
        result = frame.data["result"]
        if result["kind"] == "artifact-update":
            what = "".join(part["text"] for part in result["artifact"]["parts"])
        else:
            what = result["status"]["state"]
        told.append((int(frame.id or -1), result["kind"], what))
    return told


def test_a_send_is_answered_on_acceptance_whatever_it_says(here: Home, team: Client) -> None:
    """The task is submitted, or at work at most, also where the client wants to wait."""
    for blocking in (True, False, None):
        gate = here.gates / f"send-{blocking}"
        params = message(f"hold {gate}") | {"configuration": {"blocking": blocking}}
        task = team.result("message/send", params, agent_id="known")
        assert task["kind"] == "task"
        assert task["status"]["state"] in ("submitted", "working")
        assert states(task)[0] == "submitted"
        gate.touch()
        done = ended(team, task["id"])
        assert done["artifacts"][0]["parts"] == [{"kind": "text", "text": "done"}]
        assert states(done) == ["submitted", "working", "completed"]


def test_selectors_beside_the_call_are_consumed(team: Client) -> None:
    """By id, by code, by both; what is wrong with them is told as the card's endpoint tells it."""
    for selectors in (
        {"agent_id": "known"},
        {"agent_code": "explore"},
        {"agent_id": "known", "agent_code": "explore", "agent_workspace_id": "system"},
    ):
        task = team.result("message/send", message("hi"), **selectors)
        kept = ended(team, task["id"])
        assert "agent_id" not in json.dumps(kept)
    ours = team.result("message/send", message("hi"), agent_code="explore", agent_workspace_id="team")
    assert ended(team, ours["id"], "ours")["status"]["state"] == "completed"
    assert team.code("tasks/get", {"id": ours["id"]}, agent_id="known") == NOT_FOUND
    call = ("message/send", message("hi"))
    assert problem(team.call(*call)) == (400, "ErrParamInvalid")
    assert problem(team.call(*call, agent_id=7)) == (400, "ErrParamInvalid")
    assert problem(team.call(*call, agent_id="known", agent_workspace_id=["team"])) == (
        400,
        "ErrParamInvalid",
    )
    assert problem(team.call(*call, agent_id="ours", agent_code="explore")) == (400, "ErrParamInvalid")
    assert problem(team.call(*call, agent_id="known", agent_workspace_id="other")) == (400, "ErrParamInvalid")
    assert problem(team.call(*call, agent_id="theirs")) == (404, "ErrNotFound")
    assert problem(team.call(*call, agent_id="nobody")) == (404, "ErrNotFound")


def test_tasks_are_got_by_either_name_of_the_id(team: Client) -> None:
    """`id` counts more; without either the call is wrong."""
    task_id = team.result("message/send", message("hi"), agent_id="known")["id"]
    ended(team, task_id)
    for params in (
        {"id": task_id},
        {"taskId": task_id},
        {"id": task_id, "taskId": "nothing"},
        {"id": "", "taskId": task_id},
    ):
        assert team.result("tasks/get", params, agent_id="known")["id"] == task_id
    assert team.code("tasks/get", {"id": "nothing", "taskId": task_id}, agent_id="known") == NOT_FOUND
    assert team.code("tasks/get", {}, agent_id="known") == -32602
    shortened = team.result("tasks/get", {"taskId": task_id, "historyLength": 0}, agent_id="known")
    assert "history" not in shortened
    assert states(shortened) == ["submitted", "working", "completed"]


def test_it_speaks_a2a_03_and_nothing_else(team: Client) -> None:
    """Errors are those of that door, and come with 200."""
    known = {"agent_id": "known"}
    assert team.code("nothing", {}, **known) == -32601
    assert team.code("stream/watch", {}, **known) == -32601
    assert team.code("SendMessage", {}, **known) == -32009
    newer = team.call("message/send", message("hi"), headers={"A2A_Version": "1.0"}, **known)
    assert newer.json["error"]["code"] == -32009
    assert team.code("message/send", {}, **known) == -32602
    assert team.code("message/send", message("hi"), agent_id="none") == UNSUPPORTED
    assert team.code("tasks/pushNotificationConfig/get", {"id": "x"}, **known) == -32003
    assert team.code("agent/getAuthenticatedExtendedCard", None, **known) == -32007
    for body in (b"no json", b"[]", b"7", b"\xff"):
        answer = team.send("POST", DOOR, body)
        assert (answer.status, answer.json["error"]["code"] in (-32700, -32600)) == (200, True)
    assert problem(team.send("POST", DOOR, b"{}", Content_Type="text/plain"))[0] == 415
    assert problem(team.send("POST", DOOR, b" " * 2_000_000))[0] == 413


def test_input_goes_by_the_task_and_a_cancel_ends_it(here: Home, team: Client) -> None:
    """Each change of state is on the task."""
    known = {"agent_id": "known"}
    task_id = team.result("message/send", message("ask who?"), **known)["id"]
    waiting = until_sync(
        lambda: (
            (t := team.result("tasks/get", {"id": task_id}, **known))["status"]["state"] == "input-required"
            and t
        ),
        what="it asks",
    )
    assert states(waiting) == ["submitted", "working", "input-required"]
    team.result("message/send", message("Ada", taskId=task_id), **known)
    assert states(ended(team, task_id)) == ["submitted", "working", "input-required", "working", "completed"]
    held = team.result("message/send", message(f"hold {here.gates / 'cancel'}"), **known)["id"]
    canceled = team.result("tasks/cancel", {"id": held}, **known)
    assert canceled["status"]["state"] == "canceled"
    assert states(canceled)[-1] == "canceled"
    assert team.code("tasks/cancel", {"id": held}, **known) == -32002


def test_no_room_is_a_task_that_is_not_kept(here: Home, team: Client) -> None:
    """Rejected, as a send and as a stream."""
    gate = here.gates / "one"
    held = team.result("message/send", message(f"hold {gate}"), agent_id="one")["id"]
    refused = team.result("message/send", message("hi"), agent_id="one")
    assert refused["status"]["state"] == "rejected"
    assert states(refused) == ["rejected"]
    assert team.code("tasks/get", {"id": refused["id"]}, agent_id="one") == NOT_FOUND
    with team.stream("message/stream", message("hi"), agent_id="one") as stream:
        frames = stream.rest()
    assert shown(frames) == [(1, "task", "rejected"), (2, "status-update", "rejected")]
    gate.touch()
    ended(team, held, "one")


def test_a_stream_is_numbered_densely_from_its_task_on(team: Client) -> None:
    """`event: message`, `id:` the number, the first frame a task, the last one final."""
    with team.stream("message/stream", message("count 3"), agent_id="known") as stream:
        frames = stream.rest()
    assert shown(frames) == [
        (1, "task", "submitted"),
        (2, "status-update", "working"),
        (3, "artifact-update", "0 "),
        (4, "artifact-update", "1 "),
        (5, "artifact-update", "2 "),
        (6, "artifact-update", ""),
        (7, "status-update", "completed"),
    ]
    assert [frame.data["result"].get("final") for frame in frames if "status" in frame.data["result"]] == [
        None,
        False,
        True,
    ]


def first_task(stream: Stream) -> Frame:
    """Return the first frame that is no comment, which must hold a task."""
    while (frame := stream.next()) is not None and frame.event == ":":
        pass
    assert frame is not None
    assert frame.data["result"]["kind"] == "task"
    return frame


def test_a_stream_is_taken_up_again_behind_any_number(team: Client) -> None:
    """It begins with the task as it was then, under that number; then comes what the first stream showed behind it."""
    with team.stream("message/stream", message("count 3"), agent_id="known") as stream:
        whole = shown(stream.rest())
    task_id = team.result("message/send", message("count 3"), agent_id="known")["id"]
    ended(team, task_id)
    texts = {1: "", 2: "", 3: "0 ", 4: "0 1 ", 5: "0 1 2 ", 6: "0 1 2 ", 7: "0 1 2 "}
    for after in range(8):
        at = max(1, after)
        params = {"id": task_id, "afterSeq": after}
        with team.stream("tasks/resubscribe", params, agent_id="known") as stream:
            task = first_task(stream)
            rest = shown(stream.rest())
        assert int(task.id or 0) == at
        result = task.data["result"]
        assert "".join(a["parts"][0]["text"] for a in result.get("artifacts", ())) == texts[at]
        assert result["status"]["state"] == {1: "submitted", 7: "completed"}.get(at, "working")
        assert states(result)[-1] == result["status"]["state"]
        assert rest == whole[at:]


def test_a_number_that_never_was_gets_the_task_as_it_is(team: Client) -> None:
    """With its last status; what is no number is a mistake of the caller."""
    task_id = team.result("message/send", message("hi"), agent_id="known")["id"]
    ended(team, task_id)
    with team.stream("tasks/resubscribe", {"taskId": task_id, "afterSeq": 99}, agent_id="known") as stream:
        frames = stream.rest()
    assert [(kind, what) for _, kind, what in shown(frames)] == [
        ("task", "completed"),
        ("status-update", "completed"),
    ]
    numbers = [number for number, _, _ in shown(frames)]
    assert numbers[1] == numbers[0] + 1
    for wrong in (-1, "1", 1.5, True):
        assert team.code("tasks/resubscribe", {"id": task_id, "afterSeq": wrong}, agent_id="known") == -32602
    assert team.code("tasks/resubscribe", {"id": task_id}, agent_id="known") == UNSUPPORTED


def test_a_live_stream_goes_on_where_another_ended(here: Home, team: Client) -> None:
    """Whoever left in the middle misses nothing, and sees nothing twice."""
    gate = here.gates / "live"
    with team.stream("message/stream", message(f"hold {gate}"), agent_id="known") as stream:
        seen: list[tuple[int, str, str]] = []
        task_id = ""
        while not seen or seen[-1][1] != "artifact-update":
            frame = stream.next()
            assert frame is not None
            seen += shown([frame]) if frame.event != ":" else []
            task_id = task_id if frame.event == ":" else frame.data["result"].get("taskId", task_id)
    with team.stream(
        "tasks/resubscribe", {"id": task_id, "afterSeq": seen[-1][0]}, agent_id="known"
    ) as stream:
        assert shown([first_task(stream)]) == [(seen[-1][0], "task", "working")]
        gate.touch()
        rest = shown(stream.rest())
    assert [number for number, _, _ in [*seen, *rest]] == list(range(1, len(seen) + len(rest) + 1))
    assert rest[-1][1:] == ("status-update", "completed")
    late = team.result("message/send", message(f"hold {here.gates / 'late'}"), agent_id="known")["id"]
    until_sync(
        lambda: "artifacts" in team.result("tasks/get", {"id": late}, agent_id="known"),
        what="it says something",
    )
    with team.stream("tasks/resubscribe", {"id": late}, agent_id="known") as stream:
        assert shown([first_task(stream)]) == [(3, "task", "working")]
        (here.gates / "late").touch()
        assert [number for number, _, _ in shown(stream.rest())] == [4, 5]


def test_a_question_ends_a_stream_and_its_answer_goes_on_with_the_numbers(team: Client) -> None:
    """`final` at the question, as 0.3 has it."""
    with team.stream("message/stream", message("ask who?"), agent_id="known") as stream:
        frames = stream.rest()
    assert shown(frames)[-1] == (3, "status-update", "input-required")
    assert frames[-1].data["result"]["final"] is True
    task_id = frames[0].data["result"]["id"]
    with team.stream("tasks/resubscribe", {"id": task_id}, agent_id="known") as stream:
        assert shown(stream.rest()) == [(2, "task", "input-required"), (3, "status-update", "input-required")]
    with team.stream("message/stream", message("Ada", taskId=task_id), agent_id="known") as stream:
        assert shown([first_task(stream)])[0][1] == "task"
        stream.rest()
    with team.stream("tasks/resubscribe", {"id": task_id, "afterSeq": 3}, agent_id="known") as stream:
        assert shown(stream.rest()) == [
            (3, "task", "input-required"),
            (4, "status-update", "working"),
            (5, "artifact-update", "you said Ada"),
            (6, "status-update", "completed"),
        ]


def test_an_idle_stream_shows_that_it_is_alive(here: Home, team: Client) -> None:
    """By comments, which have no number."""
    gate = here.gates / "idle"
    with team.stream("message/stream", message(f"hold {gate}"), agent_id="known") as stream:
        while (frame := stream.next()) is not None and frame.event != ":":
            pass
        assert frame is not None
        gate.touch()
        stream.rest()


def test_an_error_on_a_stream_is_one_frame_for_who_wants_a_stream(team: Client) -> None:
    """Without a number, since it is of no task."""
    with team.stream("tasks/resubscribe", {"id": "nothing"}, agent_id="known") as stream:
        frames = stream.rest()
    assert [(frame.event, frame.id, frame.data["error"]["code"]) for frame in frames] == [
        ("message", None, NOT_FOUND)
    ]


def test_callers_see_their_own_tasks_alone(here: Home, team: Client) -> None:
    """Another key, a key of the capsule itself and its end users have other tasks, whatever they try."""
    key = here.key("keyed", end_users=True)
    callers = [
        team,
        here.client().using(moi_key=OTHER),
        here.client().bearer(key),
        here.client().bearer(key, End_User="ada"),
    ]
    mine = [
        caller.result("message/send", message(f"hold {here.gates / 'mine'}"), agent_id="keyed")["id"]
        for caller in callers
    ]
    for caller, own in zip(callers, mine, strict=True):
        assert caller.result("tasks/get", {"id": own}, agent_id="keyed")["id"] == own
        for other in mine:
            if other == own:
                continue
            for call, params in (
                ("tasks/get", {"id": other}),
                ("tasks/get", {"taskId": other}),
                ("tasks/cancel", {"id": other}),
                ("tasks/resubscribe", {"id": other}),
                ("tasks/resubscribe", {"id": other, "afterSeq": 0}),
                ("message/send", message("x", taskId=other)),
                ("message/stream", message("x", taskId=other)),
            ):
                assert caller.code(call, params, agent_id="keyed") == NOT_FOUND
    (here.gates / "mine").touch()
    for caller, own in zip(callers, mine, strict=True):
        ended(caller, own, "keyed")


def test_a_key_of_the_view_that_is_gone_ends_its_streams(tmp_path: Path) -> None:
    """And is good for nothing more; streams of other keys go on. So do numbers, over a restart."""
    with home(tmp_path, auth=AUTH) as here:
        team, other = here.client().using(moi_key=TEAM), here.client().using(moi_key=OTHER)
        gate = here.gates / "revoked"
        with (
            team.stream("message/stream", message(f"hold {gate}"), agent_id="known") as ending,
            other.stream("message/stream", message(f"hold {gate}"), agent_id="known") as staying,
        ):
            first_task(ending)
            task_id = first_task(staying).data["result"]["id"]
            here.configure(auth=AUTH.replace("    - {key: {env: MOI_TEAM}, workspace: team}\n", ""))
            until_sync(lambda: team.card(agent_id="known").status == 401, what="the key is gone")
            assert cut_off(ending)
            gate.touch()
            numbers = [number for number, _, _ in shown(staying.rest())]
        assert numbers[-1] == len(numbers) + 1
    with home(tmp_path, auth=AUTH) as here:
        other = here.client().using(moi_key=OTHER)
        with other.stream("tasks/resubscribe", {"id": task_id, "afterSeq": 2}, agent_id="known") as stream:
            assert shown([first_task(stream)]) == [(2, "task", "working")]
            assert [number for number, _, _ in shown(stream.rest())] == list(range(3, numbers[-1] + 1))


def test_a_capsule_that_moves_to_another_workspace_ends_the_streams_of_who_sees_it_no_more(
    tmp_path: Path,
) -> None:
    """Keys of the workspace that it leaves are shown out; the tasks go on."""
    with home(tmp_path, auth=AUTH) as here:
        team = here.client().using(moi_key=TEAM)
        gate = here.gates / "moved"
        with (
            team.stream("message/stream", message(f"hold {gate}"), agent_id="ours") as ending,
            team.stream("message/stream", message(f"hold {gate}"), agent_id="known") as staying,
        ):
            task_id = first_task(ending).data["result"]["id"]
            first_task(staying)
            here.configure(auth=AUTH, ours="other")
            until_sync(lambda: team.card(agent_id="ours").status == 404, what="it is not seen any more")
            gate.touch()
            staying.rest()
            assert cut_off(ending)
        here.configure(auth=AUTH)
        until_sync(lambda: team.card(agent_id="ours").status == 200, what="it is seen again")
        assert ended(team, task_id, "ours")["status"]["state"] == "completed"


def cut_off(stream: Stream) -> bool:
    """Whether a stream ends without its last frame."""
    try:
        return not any(frame.data["result"].get("final") for frame in stream.rest())
    except OSError:
        return True


def test_keys_that_come_show_strangers_out(tmp_path: Path) -> None:
    """A view that was open closes with its first key, open streams included."""
    with home(tmp_path) as here:
        plain = here.client()
        with plain.stream(
            "message/stream", message(f"hold {here.gates / 'open'}"), agent_id="known"
        ) as stream:
            first_task(stream)
            here.configure(auth=AUTH)
            until_sync(lambda: plain.card(agent_id="known").status == 401, what="it is closed")
            assert cut_off(stream)
        (here.gates / "open").touch()


def test_limits_are_told_in_the_shape_of_the_view(tmp_path: Path) -> None:
    """Streams over the limit 503, requests over the rate 429, both with `Retry-After`; other callers go on."""
    with home(tmp_path, auth=AUTH, limits="rate: 4/m, streams: 1") as here:
        team, other = here.client().using(moi_key=TEAM), here.client().using(moi_key=OTHER)
        gate = here.gates / "limits"
        with team.stream("message/stream", message(f"hold {gate}"), agent_id="known") as stream:
            first_task(stream)
            refused = team.call("message/stream", message("hi"), agent_id="known")
            assert problem(refused) == (503, "ErrServiceUnavailable")
            gate.touch()
            stream.rest()
        assert [team.card(agent_id="known").status for _ in range(2)] == [200, 200]
        for answer in (team.card(agent_id="known"), team.call("tasks/get", {"id": "x"}, agent_id="known")):
            assert problem(answer) == (429, "ErrTooManyRequests")
        assert other.card(agent_id="known").status == 200
        assert team.card(agent_id="ours").status == 200
