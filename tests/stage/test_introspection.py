"""Tokens that an endpoint is asked about (RFC 7662); the endpoint is a real server here."""

from __future__ import annotations

import asyncio
import base64
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from sidecar.auth.fetch import AT_ONCE, Fetcher
from sidecar.auth.introspection import Introspection
from sidecar.auth.providers import Providers
from sidecar.auth.vouching import ProviderError, TokenRefusedError
from tests.support.issuer import ASK, Issuer, issuer
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Clock:
    """A clock that only the test moves."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@asynccontextmanager
async def asking(made: Issuer, within: float = 5.0, **more: Any) -> AsyncIterator[Introspection]:
    """Ask an endpoint."""
    clocks = {name: more.pop(name) for name in ("clock", "monotonic") if name in more}
    fetcher = Fetcher(within=within)
    endpoint = Introspection(made.endpoint(**more), fetcher, **clocks)
    try:
        yield endpoint
    finally:
        await endpoint.aclose()
        await fetcher.aclose()


async def test_the_endpoint_is_asked_as_the_standard_says() -> None:
    """A form with the token, and the client's own credentials, encoded before they are joined (RFC 6749 2.3.1)."""
    async with issuer() as made, asking(made) as endpoint:
        made.active["opaque"] = {"active": True, "sub": "ada", "exp": int(time.time()) + 60}
        vouched = await endpoint.check("opaque")
        assert (vouched.subject, vouched.expires_at) == ("ada", made.active["opaque"]["exp"])
        assert made.forms == [{"token": ["opaque"], "token_type_hint": ["access_token"]}]
        who = base64.b64encode(b"side%3Acar:s%2Bcret").decode()
        assert made.authorizations == [f"Basic {who}"]


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"active": False, "sub": "ada"},
        {"active": "true", "sub": "ada"},
        {"active": 1, "sub": "ada"},
        {"active": True},
        {"active": True, "sub": "ada", "exp": 1},
        {"active": True, "sub": "ada", "exp": "never"},
        {"active": True, "sub": "ada", "nbf": 99_999_999_999},
        {"active": True, "sub": ["ada"]},
    ],
)
async def test_only_a_token_that_is_active_and_somebodys_counts(said: dict[str, Any]) -> None:
    """`active` is true and nothing like it."""
    async with issuer() as made, asking(made) as endpoint:
        made.active["opaque"] = said
        with pytest.raises(TokenRefusedError):
            await endpoint.check("opaque")


async def test_audience_scopes_and_subjects_hold_where_they_are_configured() -> None:
    """As for signed tokens; a client's own token is the client's."""
    wanted: dict[str, Any] = {"audiences": ("sidecar",), "scopes": ("a",), "subjects": ()}
    async with issuer() as made, asking(made, **wanted) as endpoint:
        good = {"active": True, "client_id": "robot", "aud": ["sidecar"], "scope": "b a"}
        made.active = {"good": good, "aud": {**good, "aud": "x"}, "scope": {**good, "scope": "b"}}
        assert (await endpoint.check("good")).subject == "client_id\x1frobot"
        for token in ("aud", "scope"):
            with pytest.raises(TokenRefusedError):
                await endpoint.check(token)


@pytest.mark.parametrize(
    ("status", "body", "headers", "why"),
    [
        (500, '{"active": true}', {}, "HTTP status 500"),
        (401, "{}", {}, "HTTP status 401"),
        (307, "", {"Location": "/elsewhere"}, "redirect"),
        (200, "active: true", {}, "not JSON"),
        (200, "[true]", {}, "no JSON object"),
        (200, " " * 300_000, {}, "over 262144 bytes"),
    ],
)
async def test_an_endpoint_that_misbehaves_vouches_for_nobody(
    status: int, body: str, headers: dict[str, str], why: str
) -> None:
    """5xx, a redirect, a body that is not JSON."""
    async with issuer() as made, asking(made) as endpoint:
        made.answer_with(ASK, status, body, **headers)
        with pytest.raises(ProviderError, match=why):
            await endpoint.check("opaque")
        assert list(made.asked) == [ASK]


async def test_an_endpoint_that_hangs_is_not_waited_for() -> None:
    """Five seconds, shorter here."""
    async with issuer() as made, asking(made, within=0.2) as endpoint:
        made.hang(ASK)
        with pytest.raises(ProviderError, match="did not answer"):
            await endpoint.check("opaque")


async def test_a_good_answer_is_kept_a_minute_and_no_longer_than_the_token() -> None:
    """A bad one is not kept at all."""
    monotonic, wall = Clock(10.0), Clock(1_000_000.0)
    async with issuer() as made, asking(made, clock=wall, monotonic=monotonic) as endpoint:
        made.active = {
            "long": {"active": True, "sub": "a"},
            "short": {"active": True, "sub": "a", "exp": 1_000_030},
        }
        for _ in range(3):
            await endpoint.check("long")
            await endpoint.check("short")
            with pytest.raises(TokenRefusedError):
                await endpoint.check("bad")
        assert [form["token"][0] for form in made.forms] == ["long", "short", "bad", "bad", "bad"]
        made.active.clear()
        monotonic.now, wall.now = 69.0, 1_000_029.0
        await endpoint.check("long")
        await endpoint.check("short")
        wall.now += 1
        with pytest.raises(TokenRefusedError):
            await endpoint.check("short")
        await endpoint.check("long")
        monotonic.now += 1
        with pytest.raises(TokenRefusedError):
            await endpoint.check("long")


async def test_a_client_is_not_taken_for_the_person_whom_it_is_called_like() -> None:
    """Nor one name of a person for another; no `sub` looks like any of them."""
    async with issuer() as made, asking(made) as endpoint:
        names = ("sub", "username", "client_id")
        made.active = {name: {"active": True, name: "ada"} for name in names}
        made.active["forged"] = {"active": True, "sub": "client_id\x1fada"}
        assert len({(await endpoint.check(name)).subject for name in names}) == len(names)
        with pytest.raises(TokenRefusedError):
            await endpoint.check("forged")


async def test_one_that_hangs_keeps_nobody_from_another() -> None:
    """However many questions wait there."""
    async with issuer() as hanging, issuer() as other:
        hanging.hang(ASK)
        providers = Providers(fetcher=Fetcher(within=60.0))
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(AT_ONCE * 2):
                    group.create_task(providers.check([hanging.endpoint()], f"made-up-{number}"))
                await until(lambda: hanging.asked.get(ASK) == AT_ONCE)
                async with asyncio.timeout(30):
                    assert await providers.check([other.provider()], other.token()) is not None
                assert hanging.asked == {ASK: AT_ONCE}
                hanging.let_go.set()
        finally:
            await providers.aclose()


async def test_many_callers_with_one_token_ask_once() -> None:
    """One that leaves ends it for nobody."""
    async with issuer() as made, asking(made) as endpoint:
        release = asyncio.Event()

        async def slowly() -> web.Response:
            await release.wait()
            return web.json_response({"active": True, "sub": "ada"})

        made.answers[ASK] = slowly
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(endpoint.check("opaque")) for _ in range(20)]
            await until(lambda: made.asked)
            waiting[0].cancel()
            release.set()
        assert {task.result().subject for task in waiting[1:]} == {"ada"}
        assert made.asked == {ASK: 1}


async def test_the_log_says_which_way_an_endpoint_failed() -> None:
    """Each way once; a flood of one hides no other."""
    async with issuer() as made:
        providers, settings = Providers(), [made.endpoint()]
        try:
            with capture_logs() as logs:
                for _ in range(3):
                    made.answers.clear()
                    assert await providers.check(settings, "opaque") is None
                    for status, body in ((502, "{}"), (302, ""), (200, "<html>")):
                        made.answer_with(ASK, status, body)
                        assert await providers.check(settings, "opaque") is None
        finally:
            await providers.aclose()
        assert [(line["event"], line["reason"]) for line in logs] == [
            ("token_refused", "it is not active"),
            ("provider_failed", "it answers with HTTP status 502"),
            ("provider_failed", "it answers with a redirect (302), and those are not followed"),
            ("provider_failed", "its answer is not JSON"),
        ]
        assert not [line for line in logs if "opaque" in str(line) or "s+cret" in str(line)]
