"""Tokens of an OpenID Connect issuer, which is a real server here: what is taken, what is refused, what is fetched."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from joserfc.jwk import ECKey, OKPKey, RSAKey
from structlog.testing import capture_logs

from sidecar.auth.fetch import Fetcher
from sidecar.auth.oidc import Oidc
from sidecar.auth.providers import Providers
from sidecar.auth.vouching import ProviderError, TokenRefusedError
from tests.support.issuer import DISCOVERY, JWKS, Issuer, b64, issuer
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

RSA = RSAKey.generate_key(2048)


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@asynccontextmanager
async def asking(made: Issuer, **more: Any) -> AsyncIterator[Oidc]:
    """Ask an issuer; what is not about the provider is for whoever fetches."""
    fetching = {name: more.pop(name) for name in ("within", "most", "resolver") if name in more}
    clocks = {name: more.pop(name) for name in ("clock", "monotonic") if name in more}
    fetcher = Fetcher(**fetching)
    oidc = Oidc(made.provider(**more), fetcher, **clocks)
    try:
        yield oidc
    finally:
        await oidc.aclose()
        await fetcher.aclose()


async def test_a_good_token_says_whose_it_is_and_until_when() -> None:
    """The subject is the issuer's word; the end is the token's."""
    async with issuer() as made, asking(made) as oidc:
        exp = int(time.time()) + 60
        vouched = await oidc.check(made.token(exp=exp, nbf=exp - 60, aud=["other", "sidecar"]))
        assert vouched is not None
        assert (vouched.subject, vouched.expires_at) == ("ada", exp)


@pytest.mark.parametrize(
    ("alg", "key"),
    [
        ("RS256", RSA),
        ("RS512", RSA),
        ("PS384", RSA),
        ("ES384", ECKey.generate_key("P-384")),
        ("ES512", ECKey.generate_key("P-521")),
        ("EdDSA", OKPKey.generate_key("Ed25519")),
        ("Ed25519", OKPKey.generate_key("Ed25519")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_signatures_that_only_the_issuer_can_make_are_taken(alg: str, key: Any) -> None:
    """RS, PS, ES and EdDSA."""
    async with issuer() as made, asking(made) as oidc:
        made.keys["k2"] = key
        assert await oidc.check(made.token("k2", alg=alg)) is not None


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": None}, "it has no exp"),
        ({"aud": None}, "it has no aud"),
        ({"exp": "soon"}, "it has expired"),
        ({"exp": True}, "it has expired"),
        ({"aud": "another"}, "another audience"),
        ({"aud": ["another", 7]}, "another audience"),
        ({"aud": {"sidecar": 1}}, "another audience"),
        ({"sub": None}, "does not say whose"),
        ({"sub": ""}, "no name"),
        ({"sub": "x" * 256}, "no name"),
        ({"sub": "a\nb"}, "no name"),
        ({"sub": 7}, "no name"),
    ],
)
async def test_a_token_that_lacks_what_is_needed_is_refused(claims: dict[str, Any], why: str) -> None:
    """JWT without `exp` or `aud`, for somebody else, of nobody."""
    async with issuer() as made, asking(made) as oidc:
        with pytest.raises(TokenRefusedError, match=why):
            await oidc.check(made.token(**claims))


@pytest.mark.parametrize(
    ("offset", "name", "good"),
    [
        (-300, "exp", False),
        (0, "exp", False),
        (5, "exp", True),
        (300, "nbf", False),
        (31, "nbf", False),
        (29, "nbf", True),
        (-300, "nbf", True),
    ],
)
async def test_clocks_that_differ_let_nothing_old_or_early_in(offset: int, name: str, good: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Five minutes either way: refused. Half a minute early is what clocks differ by."""
    clock = Clock()
    async with issuer() as made, asking(made, clock=clock) as oidc:
        clock.now = 1_700_000_000.0
        claims: dict[str, Any] = {"exp": 1_700_000_600, name: 1_700_000_000 + offset}
        token = made.token(**claims)
        if good:
            assert await oidc.check(token) is not None
        else:
            with pytest.raises(TokenRefusedError):
                await oidc.check(token)


async def test_scopes_are_all_needed_and_of_subjects_one() -> None:
    """As the configuration says; scopes come as words or as a list."""
    async with issuer() as made, asking(made, scopes=("a", "b"), subjects=("ada", "bob")) as oidc:
        assert await oidc.check(made.token(scope="a b c")) is not None
        assert await oidc.check(made.token(scp=["b", "a"], sub="bob")) is not None
        for claims, why in (
            ({}, "scope a"),
            ({"scope": "a ab"}, "scope b"),
            ({"scope": "a b", "sub": "eve"}, "not one of those"),
        ):
            with pytest.raises(TokenRefusedError, match=why):
                await oidc.check(made.token(**claims))


async def test_forged_tokens_are_refused() -> None:
    """`alg: none`, HS256 with the public key, another's key, altered, cut short, made longer."""
    async with issuer() as made, asking(made) as oidc:
        good = made.token()
        head, payload, mac = good.split(".")
        forged = [
            made.unsigned({"alg": "none", "kid": "k1"}, "x"),
            made.unsigned({"alg": "None", "kid": "k1"}, mac),
            made.signed_with_public_key(),
            made.token(key=ECKey.generate_key("P-256")),
            made.token(kid=None),
            made.unsigned({"alg": "ES256", "kid": 7}, mac),
            made.token(header={"kid": ""}),
            made.unsigned({"alg": "ES256", "kid": "k1", "crit": ["exp"]}, mac),
            f"{head}.{b64(b'{}')}.{mac}",
            f"{head}.{payload}.{mac[:-4]}",
            f"{head}.{payload}.{mac}AAAA",
            made.unsigned({"alg": "ES256", "kid": "k1", "b64": False}, mac),
            made.unsigned({"alg": "ES256", "kid": "k1", "b64": False, "crit": ["b64"]}, mac),
            made.unsigned({"alg": "RS256", "kid": "k1"}, mac),
            made.unsigned({"alg": 7, "kid": "k1"}, mac),
            made.unsigned({"alg": ["ES256"], "kid": "k1"}, mac),
        ]
        for token in forged:
            try:
                assert await oidc.check(token) is None, token
            except TokenRefusedError:
                continue
        assert await oidc.check(good) is not None


@pytest.mark.parametrize("token", ["", "x", "a.b", "a.b.c", "....", "a.b.", "é.b.c", "e30.e30.e30"])
async def test_what_is_visibly_not_of_this_issuer_costs_no_fetch(token: str) -> None:
    """No shape of a token, or another issuer in it."""
    async with issuer() as made, asking(made) as oidc:
        assert await oidc.check(token) is None
        assert await oidc.check(made.token(iss="https://elsewhere.example")) is None
        assert await oidc.check(made.token(iss=made.url + "/")) is None
        assert made.asked == {}


@pytest.mark.parametrize(
    "kid", ["../../etc/passwd", "http://127.0.0.1:1/keys", "k1\x00", "K1", "k1/../k1", "x" * 1024]
)
async def test_a_key_id_is_only_ever_compared(kid: str) -> None:
    """A path or URL in `kid` leads nowhere; nor do `jku`, `x5u` and a key in the header."""
    async with issuer() as made, asking(made) as oidc:
        mine = ECKey.generate_key("P-256")
        lures = {"jku": made.url + "/mine", "x5u": made.url + "/mine", "jwk": mine.as_dict(private=False)}
        with pytest.raises(TokenRefusedError, match="does not have"):
            await oidc.check(made.token(header={"kid": kid, **lures}))
        with pytest.raises(TokenRefusedError, match="signature"):
            await oidc.check(made.token(key=mine, header=lures))
        assert set(made.asked) == {DISCOVERY, JWKS}


async def test_keys_are_kept_a_quarter_of_an_hour() -> None:
    """Then they are fetched again, and a key that is gone is good no longer."""
    clock = Clock()
    async with issuer() as made, asking(made, monotonic=clock) as oidc:
        token = made.token()
        for _ in range(3):
            assert await oidc.check(token) is not None
        assert made.asked == {DISCOVERY: 1, JWKS: 1}
        made.keys = {"k2": ECKey.generate_key("P-256")}
        clock.now += 899
        assert await oidc.check(token) is not None
        clock.now += 1
        with pytest.raises(TokenRefusedError):
            await oidc.check(token)
        assert made.asked == {DISCOVERY: 2, JWKS: 2}


async def test_a_new_key_is_found_at_once_and_an_unknown_one_cools_down() -> None:
    """Rotated keys work with the first token that names one; a flood of unknown ids fetches once in a while."""
    clock = Clock()
    async with issuer() as made, asking(made, monotonic=clock) as oidc:
        assert await oidc.check(made.token()) is not None
        made.keys["k2"] = ECKey.generate_key("P-256")
        assert await oidc.check(made.token("k2")) is not None
        assert made.asked[JWKS] == 2
        for number in range(50):
            with pytest.raises(TokenRefusedError):
                await oidc.check(made.token(header={"kid": f"guess{number}"}))
        assert made.asked[JWKS] == 2
        clock.now += 15
        with pytest.raises(TokenRefusedError):
            await oidc.check(made.token(header={"kid": "guess"}))
        assert made.asked[JWKS] == 3


async def test_many_callers_wait_for_one_fetch() -> None:
    """One in flight per issuer; one of them that leaves ends it for nobody."""
    async with issuer() as made, asking(made) as oidc:
        release = asyncio.Event()

        async def slowly() -> web.Response:
            await release.wait()
            return web.json_response({"issuer": made.url, "jwks_uri": made.url + JWKS})

        made.answers[DISCOVERY] = slowly
        token = made.token()
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(oidc.check(token)) for _ in range(20)]
            await until(lambda: made.asked)
            waiting[0].cancel()
            release.set()
        assert all(task.result() is not None for task in waiting[1:])
        assert made.asked == {DISCOVERY: 1, JWKS: 1}


@pytest.mark.parametrize("path", [DISCOVERY, JWKS])
@pytest.mark.parametrize(
    ("status", "body", "headers", "why"),
    [
        (500, "{}", {}, "HTTP status 500"),
        (302, "", {"Location": "/elsewhere"}, "redirect"),
        (200, "<html>", {}, "not JSON"),
        (200, "[]", {}, "discovery document|no key set"),
        (200, "x" * 300_000, {}, "over 262144 bytes"),
        (
            200,
            '{"issuer": "https://elsewhere.example", "jwks_uri": "/", "keys": 7}',
            {},
            "this issuer|no key set",
        ),
    ],
)
async def test_an_issuer_that_misbehaves_is_told_apart_and_followed_nowhere(
    path: str, status: int, body: str, headers: dict[str, str], why: str
) -> None:
    """It fails; a moment later it is asked again, and works."""
    clock = Clock()
    async with issuer() as made, asking(made, monotonic=clock) as oidc:
        made.answer_with(path, status, body, **headers)
        for _ in range(3):
            with pytest.raises(ProviderError, match=why):
                await oidc.check(made.token())
        assert made.asked[path] == 1
        assert "/elsewhere" not in made.asked
        made.answers.clear()
        clock.now += 2
        assert await oidc.check(made.token()) is not None


@pytest.mark.parametrize("where", ["file:///etc/passwd", "/keys", 7, None, "ftp://127.0.0.1/"])
async def test_keys_are_fetched_over_http_alone(where: object) -> None:
    """Whatever discovery says."""
    async with issuer() as made, asking(made) as oidc:

        async def odd() -> web.Response:
            return web.json_response({"issuer": made.url, "jwks_uri": where})

        made.answers[DISCOVERY] = odd
        with pytest.raises(ProviderError, match="names no place"):
            await oidc.check(made.token())


async def test_an_issuer_that_hangs_is_not_waited_for() -> None:
    """Five seconds, shorter here; who waits is told at the same time."""
    async with issuer() as made, asking(made, within=0.2) as oidc:
        made.hang(DISCOVERY)
        results = await asyncio.gather(*(oidc.check(made.token()) for _ in range(5)), return_exceptions=True)
        assert {str(error) for error in results} == {"it did not answer within 0.2 s"}
        assert made.asked == {DISCOVERY: 1}


async def test_old_keys_are_good_until_their_time_where_no_new_ones_can_be_had() -> None:
    """A fetch for an unknown key that fails takes nothing away."""
    async with issuer() as made, asking(made) as oidc:
        assert await oidc.check(made.token()) is not None
        made.answer_with(JWKS, 500)
        with pytest.raises(ProviderError):
            await oidc.check(made.token(header={"kid": "other"}))
        assert await oidc.check(made.token()) is not None


class Turncoat(AbstractResolver):
    """A name server that sends a public name to this machine."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the address, whatever the name."""
        kind = socket.AF_INET6 if ":" in self.address else family or socket.AF_INET
        return [ResolveResult(hostname=host, host=self.address, port=port, family=kind, proto=0, flags=0)]

    async def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1"])
async def test_a_name_that_leads_to_a_private_address_is_not_connected_to(address: str) -> None:
    """The address is looked at when it is connected to, so that a name cannot lead elsewhere in between."""
    async with issuer() as made:
        url = f"http://id.example.org:{made.port}"
        made.url = url
        async with asking(made, allow_private=False, resolver=Turncoat(address)) as oidc:
            with pytest.raises(ProviderError, match="not public"):
                await oidc.check(made.token())
            assert made.asked == {}
        if address == "127.0.0.1":
            async with asking(made, resolver=Turncoat(address)) as oidc:
                assert await oidc.check(made.token()) is not None


async def test_an_address_instead_of_a_name_is_looked_at_too() -> None:
    """No resolver sees those."""
    async with issuer() as made, asking(made, allow_private=False) as oidc:
        with pytest.raises(ProviderError, match="not public"):
            await oidc.check(made.token())
        assert made.asked == {}


async def test_keys_that_are_weak_broken_or_for_something_else_are_left_out() -> None:
    """They are no keys; the others are used."""
    async with issuer() as made, asking(made) as oidc:
        made.keys |= {"enc": ECKey.generate_key("P-256"), "bound": ECKey.generate_key("P-256")}
        made.keys |= {"weak": RSA, "broken": ECKey.generate_key("P-256"), "ops": ECKey.generate_key("P-256")}
        made.facts = {
            "enc": {"use": "enc"},
            "bound": {"alg": "ES512"},
            "weak": {"n": b64(b"\x80" + bytes(127))},
            "broken": {"x": "AA"},
            "ops": {"key_ops": ["sign"]},
        }
        for kid in ("enc", "bound", "ops"):
            with pytest.raises(TokenRefusedError, match="does not have"):
                await oidc.check(made.token(kid))
        for kid in ("weak", "broken"):
            with pytest.raises(TokenRefusedError, match="does not have"):
                await oidc.check(made.token(header={"kid": kid}))
        assert await oidc.check(made.token()) is not None


async def test_a_failing_provider_is_logged_once_and_passed_over() -> None:
    """The next one vouches; the log names the place and the reason, and never the token."""
    async with issuer() as broken, issuer() as good:
        broken.answer_with(DISCOVERY, 503)
        settings = [broken.provider(), good.provider()]
        providers = Providers()
        try:
            with capture_logs() as logs:
                for _ in range(5):
                    assert await providers.check(settings, good.token()) is not None
                    assert await providers.check(settings, broken.token()) is None
                    assert await providers.check(settings, good.token(aud="x")) is None
        finally:
            await providers.aclose()
        assert [(line["event"], line["log_level"], line["at"], line["reason"]) for line in logs] == [
            ("provider_failed", "warning", broken.url, "it answers with HTTP status 503"),
            ("token_refused", "info", good.url, "it is for another audience"),
        ]
        assert "eyJ" not in str(logs)


async def test_a_provider_that_is_configured_no_longer_is_let_go_of() -> None:
    """Even while it is being asked; nothing is left at the end."""
    async with issuer() as made:
        providers = Providers()
        made.hang(DISCOVERY)
        task = asyncio.get_running_loop().create_task(providers.check([made.provider()], made.token()))
        await until(lambda: made.asked)
        providers.keep([])
        providers.keep([])
        task.cancel()
        await asyncio.wait((task,))
        await providers.aclose()
