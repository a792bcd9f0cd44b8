"""The desk on a real socket."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from sidecar.desk.access import Access
from sidecar.desk.api import ReloadResult
from sidecar.errors import Problem
from sidecar.model import CapsuleState, CapsuleStatus, LastError
from tests.support.desk import TOKEN, Running, refusal_of, running_desk
from tests.support.rawhttp import exchange, request_bytes
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROWS = tuple(
    CapsuleStatus(f"c{i:04}", f"/c/{i}", CapsuleState.SERVING, tasks={"working": 1}) for i in range(1000)
)


@pytest_asyncio.fixture
async def running() -> AsyncIterator[Running]:
    """Return a desk that asks for a token and shows its metrics to all."""
    async with running_desk() as stage:
        yield stage


async def test_health_is_open_and_says_ok(running: Running) -> None:
    """`/healthz` needs no token and no registry."""
    answer = await running.get("/healthz?x=1")
    assert (answer.status, json.loads(answer.body)) == (200, {"status": "ok"})
    assert (await running.get("/healthz", method="HEAD")).status == 200


async def test_readiness_turns_with_the_registry_and_tells_why(running: Running) -> None:
    """`/readyz` is 503 before and while draining and 200 in between, with the same detail; B18, B13."""
    bad = CapsuleStatus("b", "/c/b", CapsuleState.UNBOUND)
    running.view.rows = [bad]
    running.view.settings = replace(running.view.settings, last_error=LastError(1.0, "c.yaml:1:4: no"))
    ready = await running.get("/readyz")
    running.view.is_ready = False
    unready = await running.get("/readyz")
    assert (ready.status, unready.status) == (200, 503)
    for answer, status in ((ready, "ready"), (unready, "starting")):
        document = json.loads(answer.body)
        assert document["status"] == status
        assert document["unbound"] == ["b"]
        assert document["config"]["last_error"]["message"] == "c.yaml:1:4: no"


@pytest.mark.parametrize("path", ["/api/capsules", "/api/capsules/x", "/api/nothing", "/api", "/api/"])
@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_a_stranger_learns_nothing_of_what_the_operator_has(
    running: Running, path: str, method: str
) -> None:
    """Below `/api` credentials come before path and method: 401 with a challenge, whatever is there."""
    answer = await running.get(path, method=method)
    assert refusal_of(answer) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer ")


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "//", (404, "not_found")),
        ("GET", "/nothing", (404, "not_found")),
        ("GET", "/apix", (404, "not_found")),
        ("GET", "/%61pi/capsules", (404, "not_found")),
        ("GET", "/api/nothing", (404, "not_found")),
        ("GET", "/api/capsules/", (404, "not_found")),
        ("GET", "/api/capsules/a/b", (404, "not_found")),
        ("GET", "/healthz/", (404, "not_found")),
        ("POST", "/healthz", (405, "method_not_allowed")),
        ("OPTIONS", "/metrics", (405, "method_not_allowed")),
        ("DELETE", "/api/capsules/x", (405, "method_not_allowed")),
        ("GET", "/api/reload", (405, "method_not_allowed")),
    ],
)
async def test_unknown_paths_and_wrong_methods_are_refused_in_the_one_shape(
    running: Running, method: str, path: str, expected: tuple[int, str]
) -> None:
    """404 for an unknown path, 405 with `allow` for a known one (RFC 9110 section 15.5.6)."""
    answer = await running.ask(path, method=method)
    assert refusal_of(answer) == expected
    assert ("allow" in answer.headers) == (answer.status == 405)


async def test_the_guard_comes_before_everything(running: Running) -> None:
    """A foreign Host or Origin is 403, also where a token would be missing or right (B46)."""
    for name in ("Host", "Origin"):
        request = request_bytes(
            "GET", "/api/capsules", headers=TOKEN | {name: "http://evil.example"[7 * (name == "Host") :]}
        )
        answer = await exchange(running.port, request)
        assert answer.status == 403


async def test_the_registry_is_shown_and_answers_304_until_it_changes(running: Running) -> None:
    """`/api/capsules` carries a strong ETag that holds exactly as long as the document."""
    running.view.rows = ROWS
    first = await running.ask("/api/capsules")
    assert len(json.loads(first.body)["capsules"]) == 1000
    assert first.headers["cache-control"] == "private, no-cache"
    known = {"If-None-Match": f'"other", W/{first.headers["etag"]}'}
    again = await running.ask("/api/capsules", headers=known)
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
    running.view.rows = (replace(ROWS[0], tasks={"working": 2}), *ROWS[1:])
    changed = await running.ask("/api/capsules", headers=known)
    assert changed.status == 200
    assert json.loads(changed.body)["capsules"][0]["tasks"] == {"working": 2}
    running.view.rows = tuple(replace(row) for row in ROWS)
    assert (await running.ask("/api/capsules", headers=known)).status == 304


async def test_one_capsule_is_shown_by_its_id(running: Running) -> None:
    """`/api/capsules/{id}` is that row of the whole document, with an ETag of its own; `~` may come encoded."""
    namesake = CapsuleStatus("c0001~b", "/c/b", CapsuleState.SERVING)
    running.view.rows = sorted((*ROWS, namesake), key=lambda row: row.id)
    whole: list[dict[str, Any]] = json.loads((await running.ask("/api/capsules")).body)["capsules"]
    one = await running.ask("/api/capsules/c0001%7Eb")
    assert json.loads(one.body) == next(row for row in whole if row["id"] == "c0001~b")
    same = await running.ask("/api/capsules/c0001~b", headers={"If-None-Match": one.headers["etag"]})
    assert same.status == 304
    assert refusal_of(await running.ask("/api/capsules/c0001~c")) == (404, "not_found")


async def test_a_reload_is_handed_to_the_daemon_and_its_outcome_told(running: Running) -> None:
    """`POST /api/reload`: 200 with whether anything changed, 422 with the problems of a refused configuration."""
    running.result = ReloadResult(changed=True)
    answer = await running.ask("/api/reload", method="POST")
    assert (answer.status, json.loads(answer.body)) == (200, {"changed": True})
    running.result = ReloadResult(problems=(Problem("c.yaml", 1, 2, "E-CFG", "a", "no"),))
    answer = await running.ask("/api/reload", method="POST")
    assert refusal_of(answer) == (422, "config_refused")
    assert json.loads(answer.body)["problems"] == ["c.yaml:1:2: E-CFG a: no"]
    assert refusal_of(await running.get("/api/reload", method="POST")) == (401, "unauthorized")
    assert running.reloads == 2


async def test_metrics_are_open_or_behind_the_token(running: Running) -> None:
    """`desk.metrics` decides, and a reload of the configuration may change it."""
    answer = await running.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"\nsidecar_open_streams 7.0\n" in answer.body
    access = Access("s3cret")
    running.desk.reconfigure(access=access, worker_access=access, open_metrics=False)
    assert refusal_of(await running.get("/metrics")) == (401, "unauthorized")
    assert (await running.ask("/metrics")).status == 200


async def test_the_desk_counts_its_own_requests(running: Running) -> None:
    """By path template and outcome; paths that clients invent are one series."""
    running.view.rows = ROWS
    await running.get("/healthz")
    await running.get("/invented")
    await running.get("/api/invented")
    await running.ask("/api/capsules/c0001")
    text = (await running.get("/metrics")).body.decode()
    for labels in (
        'outcome="ok",path="/healthz"',
        'outcome="not_found",path="other"',
        'outcome="unauthorized",path="other"',
        'outcome="ok",path="/api/capsules/{id}"',
    ):
        assert f"sidecar_desk_requests_total{{{labels}}} 1.0\n" in text


async def test_many_scrapes_at_once_are_all_answered(running: Running) -> None:
    """Scrapes that come together share one; a scraper that leaves does not end it for the others."""
    running.view.rows = ROWS
    for row in ROWS:
        running.metrics.capsule(row.id).request("card", "ok")
    _, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(request_bytes("GET", "/metrics"))
    await writer.drain()
    writer.transport.abort()
    answers = await asyncio.gather(*(running.get("/metrics") for _ in range(20)))
    assert {answer.status for answer in answers} == {200}
    assert all(b'capsule="_other"' in answer.body for answer in answers)


async def test_a_client_that_leaves_during_a_reload_harms_nothing(running: Running) -> None:
    """Only its waiting ends; the desk answers the next one."""
    running.finish.clear()
    _, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(request_bytes("POST", "/api/reload", headers=TOKEN))
    await writer.drain()
    await until(lambda: running.reloads == 1, what="the reload to begin")
    writer.transport.abort()
    running.finish.set()
    assert (await running.ask("/api/reload", method="POST")).status == 200
