"""Tokens of others at the Everruns view: an issuer and an endpoint that are real servers, over HTTP."""

from __future__ import annotations

import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from sidecar.model import AuthSettings
from tests.support.channels import channels
from tests.support.issuer import ASK, b64, issuer
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from sidecar.model import ProviderSettings
    from tests.support.channels import Stage


@asynccontextmanager
async def vouched_for(place: Path, *providers: ProviderSettings) -> AsyncIterator[Stage]:
    """Run an agent `a` whose callers others vouch for."""
    async with channels(place, real=True) as stage:
        await stage.bench.serve(stage.bench.want("a", auth=AuthSettings(providers=providers)))
        yield stage


async def test_the_card_names_the_providers_in_their_order(tmp_path: Path) -> None:
    """`oidc` with its issuer, `o_auth2` with its type alone."""
    async with (
        issuer() as made,
        vouched_for(tmp_path, made.endpoint(), made.provider()) as stage,
    ):
        card = await stage.ask("GET", "a", key=made.token())
        assert json.loads(card.body)["auth"] == [{"type": "o_auth2"}, {"type": "oidc", "issuer": made.url}]


async def test_callers_of_an_issuer_have_sessions_of_their_own(tmp_path: Path) -> None:
    """By subject; another token of the same subject sees the same ones."""
    async with issuer() as made, vouched_for(tmp_path, made.provider()) as stage:
        session = await stage.session(key=made.token())
        again = made.token(exp=int(time.time()) + 1200)
        assert (await stage.ask("GET", f"a/sessions/{session}", key=again)).status == 200
        assert (await stage.ask("GET", f"a/sessions/{session}", key=made.token(sub="bob"))).status == 404
        assert (await stage.ask("GET", "a", key=made.token(), End_User="ada")).status == 403
        assert (await stage.ask("POST", "a/runtime-auth", key=made.token())).status == 401


async def test_tokens_that_lack_something_or_are_forged_are_refused_alike(tmp_path: Path) -> None:
    """Without `exp` or `aud`, for another audience, of an unknown key, HS256, `alg: none`: 401, in the same words."""
    async with issuer() as made, vouched_for(tmp_path, made.provider(scopes=("tasks",))) as stage:
        good = {"scope": "tasks"}
        head, _, signature = made.token(**good).split(".")
        tokens = [
            made.token(exp=None, **good),
            made.token(aud=None, **good),
            made.token(aud="another", **good),
            made.token(iss="https://another.example", **good),
            made.token(exp=int(time.time()) - 300, **good),
            made.token(nbf=int(time.time()) + 300, **good),
            made.token(scope="other"),
            made.token(header={"kid": "unknown"}, **good),
            made.token(kid=None, **good),
            made.signed_with_public_key(),
            made.unsigned({"alg": "none", "kid": "k1"}, "x", **good),
            f"{head}.{b64(b'{}')}.{signature}",
            "opaque",
        ]
        told = {(await stage.ask("GET", "a", key=token)).body for token in tokens}
        assert len(told) == 1
        assert json.loads(told.pop())["code"] == "unauthorized"
        assert (await stage.ask("GET", "a", key=made.token(**good))).status == 200


async def test_an_endpoint_that_fails_lets_nobody_in_and_the_log_says_how(tmp_path: Path) -> None:
    """Not active, a server error, a redirect, no JSON: a plain 401; what came is in the log."""
    async with issuer() as made, vouched_for(tmp_path, made.endpoint()) as stage:
        made.active["good"] = {"active": True, "sub": "ada"}
        assert (await stage.ask("GET", "a", key="good")).status == 200
        assert (await stage.ask("GET", "a", key="inactive")).status == 401
        for number, (status, body, headers, why) in enumerate(
            (
                (500, "{}", {}, "500"),
                (302, "", {"Location": "/elsewhere"}, "redirect"),
                (200, "active", {}, "JSON"),
            )
        ):
            made.answer_with(ASK, status, body, **headers)
            with capture_logs() as logs:
                refused = await stage.ask("GET", "a", key=f"token-{number}")
            assert refused.status == 401
            assert refused.headers["content-type"] == "application/problem+json"
            assert why not in refused.body.decode()
            assert any(why in str(record.get("reason")) for record in logs), logs


async def test_a_stream_ends_with_the_token_that_opened_it(tmp_path: Path) -> None:
    """A stream outlives no credential, also where nobody revokes it."""
    async with issuer() as made, vouched_for(tmp_path, made.provider()) as stage:
        token = made.token(exp=int(time.time()) + 2)
        session = await stage.session(key=token)
        answer = await stage.ask("GET", f"a/sessions/{session}/sse?after_sequence=0", key=token)
        assert b'event: disconnecting\ndata: {"reason":"credential_ended"' in answer.body
        await until(lambda: not stage.bench.everruns.streams)
