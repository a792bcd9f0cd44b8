"""Who is let in: by the values alone, and with real issuers."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from sidecar.auth.access import Access
from sidecar.auth.caller import ANONYMOUS, Caller
from sidecar.auth.fixed import MoiKeys
from sidecar.auth.holds import Holds
from sidecar.auth.keys import KeyRing
from sidecar.auth.providers import Providers
from sidecar.errors import RefusedError
from sidecar.model import AuthKind, AuthSettings, Capsule, Manifest, PersonalToken, Rate, Secret, Settings
from sidecar.store import Store
from tests.support.credentials import ADMIN
from tests.support.issuer import ASK, issuer
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PAT = "sc_pat_0123456789"
MEMBERS = (PersonalToken(sha256(PAT.encode()).digest(), "ada"),)


def capsule(name: str = "a", directory: str | None = None, **auth: Any) -> Capsule:
    """Make a capsule."""
    return Capsule(
        id=name,
        directory=directory or f"/c/{name}",
        session_id=f"ses_{name}",
        manifest=Manifest(name, "1"),
        settings=Settings(auth=AuthSettings(**auth)),
        workspace="/c",
        changed_at=0.0,
    )


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class Gate:
    """What decides, and what a test asks of it."""

    def __init__(self, store: Store) -> None:
        self.clock = Clock()
        self.ring = KeyRing.load(store, self.clock)
        providers = Providers(clock=self.clock, monotonic=self.clock)
        self.access = Access(self.ring, providers, admin_token=ADMIN, clock=self.clock, monotonic=self.clock)

    async def key(self, of: Capsule, **more: Any) -> tuple[str, str]:
        """Make a key; return its id and its secret."""
        issued = await self.ring.create(of.directory, of.manifest.name, **more)
        return issued.key.id, issued.secret

    async def caller(self, of: Capsule, token: str, *end_users: str) -> Caller:
        """Ask as a client of any door but the murmur one."""
        return await self.access.caller(of, headers(f"Bearer {token}", end_users=end_users))

    async def status(self, of: Capsule, token: str, *end_users: str) -> int:
        """Return the status that such a client gets."""
        try:
            await self.caller(of, token, *end_users)
        except RefusedError as error:
            return error.refusal.status
        return 200


def headers(*authorization: str, end_users: tuple[str, ...] = ()) -> CIMultiDictProxy[str]:
    """Make the headers of a request."""
    made = CIMultiDict([("Host", "localhost")])
    for value in authorization:
        made.add("Authorization", value)
    for value in end_users:
        made.add("End-User", value)
    return CIMultiDictProxy(made)


@asynccontextmanager
async def gate(directory: Path) -> AsyncIterator[Gate]:
    """Open a database and what decides."""
    store = Store.open(str(directory / "sidecar.db"))
    made = Gate(store)
    try:
        yield made
    finally:
        await made.access.aclose()
        store.close()


async def test_a_capsule_without_credentials_ignores_what_is_sent(tmp_path: Path) -> None:
    """Two headers, nonsense, another's key: everybody is the same caller there."""
    async with gate(tmp_path) as made:
        _, other = await made.key(capsule("b"))
        for sent in ((), ("Bearer x", "Bearer y"), ("nonsense",), (f"Bearer {other}",)):
            given = headers(*sent, end_users=("ann",))
            assert await made.access.caller(capsule(), given) is ANONYMOUS
            assert await made.access.operator(capsule(), given) is ANONYMOUS


async def test_whatever_is_wrong_with_a_credential_is_told_alike(tmp_path: Path) -> None:
    """None, a wrong one, another capsule's, expired, revoked, two headers, another scheme."""
    async with gate(tmp_path) as made:
        a = capsule(personal_tokens=MEMBERS)
        _, good = await made.key(a)
        _, other = await made.key(capsule("b"))
        _, expired = await made.key(a, lasts=10)
        revoked_id, revoked = await made.key(a)
        await made.ring.revoke(revoked_id)
        made.clock.now += 10
        sent: list[tuple[str, ...]] = [
            (),
            ("",),
            ("Bearer",),
            ("Bearer ",),
            (f"Basic {good}",),
            (good,),
            (f"Bearer {good} {good}",),
            (f"Bearer {good}, Bearer {good}",),
            (f"Bearer {good}", f"Bearer {good}"),
            (f"Bearer {good}", "Basic x"),
            (f"Bearer {good[:-1]}",),
            (f"Bearer {good}0",),
            (f"Bearer {good.upper()}",),
            (f"Bearer\t{good}",),
            (f"Bearer {PAT}0",),
            (f"Bearer {PAT[:-1]}",),
            (f"Bearer {other}",),
            (f"Bearer {expired}",),
            (f"Bearer {revoked}",),
            (f"Bearer {ADMIN}",),
            ("Bearer sc_rt_x.y",),
            ("Bearer \u00e9",),
        ]
        refusals = set()
        for one in sent:
            with pytest.raises(RefusedError) as caught:
                await made.access.caller(a, headers(*one))
            refusals.add(caught.value.refusal)
        (refused,) = refusals
        assert (refused.status, refused.code) == (401, "unauthorized")
        assert dict(refused.headers)["www-authenticate"] == 'Bearer realm="sidecar"'
        for scheme in ("Bearer", "bearer", "BEARER", "bEaReR", "Bearer  "):
            assert (await made.access.caller(a, headers(f"{scheme} {good}"))).kind == "agent_key"


async def test_a_capsule_that_had_a_key_stays_closed_until_that_is_forgotten(tmp_path: Path) -> None:
    """Also under another name in the same place, which a manifest may take whenever it likes."""
    async with gate(tmp_path) as made:
        key_id, secret = await made.key(capsule())
        renamed = capsule("other", directory="/c/a")
        assert await made.status(renamed, secret) == 401
        await made.ring.revoke(key_id)
        assert await made.status(capsule(), secret) == 401
        assert made.access.kinds(capsule()) == made.access.kinds(renamed) == (AuthKind("agent_key"),)
        await made.ring.forget(key_id)
        assert await made.status(capsule(), secret) == 200
        assert made.access.kinds(capsule()) == ()


async def test_keys_and_their_end_users_are_owners_of_their_own(tmp_path: Path) -> None:
    """A key, each of its end users, another key; a rotated key stays the same owner."""
    async with gate(tmp_path) as made:
        a = capsule()
        key_id, secret = await made.key(a, end_users=True)
        _, second = await made.key(a)
        owners = [
            (await made.caller(a, secret)).owner,
            (await made.caller(a, secret, "ann")).owner,
            (await made.caller(a, secret, "bob")).owner,
            (await made.caller(a, second)).owner,
            ANONYMOUS.owner,
        ]
        assert len(set(owners)) == 5
        rotated = await made.ring.rotate(key_id)
        assert rotated is not None
        assert (await made.caller(a, rotated.secret, "ann")).owner == owners[1]


@pytest.mark.parametrize(
    ("end_user", "status"),
    [
        ("ann", 200),
        ("x" * 256, 200),
        ("Ännchen 7", 200),
        ("x" * 257, 403),
        ("", 403),
        (" ann", 403),
        ("ann\u00a0", 403),
        ("a\nb", 403),
        ("a\udcff", 403),
    ],
)
async def test_an_end_user_has_a_name_of_some_form(tmp_path: Path, end_user: str, status: int) -> None:
    """At most 256 characters, no blank edges."""
    async with gate(tmp_path) as made:
        _, secret = await made.key(capsule(), end_users=True)
        assert await made.status(capsule(), secret, end_user) == status


async def test_only_keys_that_may_speak_for_end_users(tmp_path: Path) -> None:
    """Others with `End-User`: 403; two of them: 403; with a wrong key: 401 all the same."""
    async with gate(tmp_path) as made:
        a = capsule(personal_tokens=MEMBERS)
        _, plain = await made.key(a)
        _, speaking = await made.key(a, end_users=True)
        assert await made.status(a, plain, "ann") == 403
        assert await made.status(a, PAT, "ann") == 403
        assert await made.status(a, speaking, "ann", "bob") == 403
        assert await made.status(a, plain[:-1], "ann") == 401


async def test_a_runtime_token_stands_for_one_end_user_and_for_nothing_else(tmp_path: Path) -> None:
    """Its owner is the key's for that user; it cannot be exchanged, nor speak for others, nor be used elsewhere."""
    async with gate(tmp_path) as made:
        a, b = capsule(), capsule("b")
        key_id, secret = await made.key(a, end_users=True, operator=True)
        await made.key(b, end_users=True)
        speaking = await made.caller(a, secret, "ann")
        issued = made.access.issue(a, speaking)
        token = issued.access_token
        assert issued.expires_in == 900
        assert token not in repr(issued)
        assert issued.virtual_user_id == made.access.issue(a, speaking).virtual_user_id
        caller = await made.caller(a, token)
        assert (caller.owner, caller.kind, caller.end_user) == (speaking.owner, "runtime_token", "ann")
        assert not caller.operator
        for end_user in ("ann", "bob"):
            assert await made.status(a, token, end_user) == 403
        assert await made.status(b, token) == 401
        for bad in (token[:-1], token + "A", token.swapcase()):
            assert await made.status(a, bad) == 401
        for who, status in ((caller, 401), (await made.caller(a, secret), 403), (ANONYMOUS, 401)):
            with pytest.raises(RefusedError) as caught:
                made.access.issue(a, who)
            assert caught.value.refusal.status == status
        made.clock.now += 899
        assert await made.status(a, token) == 200
        made.clock.now += 1
        assert await made.status(a, token) == 401
        again = made.access.issue(a, speaking).access_token
        await made.ring.rotate(key_id, overlap=0)
        assert await made.status(a, again) == 200
        await made.ring.revoke(key_id)
        assert await made.status(a, again) == 401


async def test_members_are_let_in_where_a_capsule_takes_them(tmp_path: Path) -> None:
    """By the hash of their token; elsewhere it is no credential."""
    async with gate(tmp_path) as made:
        taking = capsule(personal_tokens=MEMBERS)
        caller = await made.caller(taking, PAT)
        assert (caller.owner, caller.kind, caller.operator) == ("member:ada", "personal_access_token", False)
        b = capsule("b")
        await made.key(b)
        assert await made.status(b, PAT) == 401


async def test_a_capsule_of_members_stays_closed_when_the_last_token_is_taken_out(tmp_path: Path) -> None:
    """It takes nobody then, and says still what it would take; streams of members and strangers end."""
    async with gate(tmp_path) as made:
        now = [capsule(personal_tokens=MEMBERS)]
        ended: list[str] = []
        member = await made.caller(now[0], PAT)
        made.access.streams.hold(lambda: now[0], member, lambda: ended.append("member"))
        now[0] = capsule(personal_tokens=())
        made.access.streams.recheck(now[0].directory)
        assert ended == ["member"]
        for token in (PAT, "another"):
            assert await made.status(now[0], token) == 401
        assert not made.access.still_good(now[0], ANONYMOUS, door=True)
        assert made.access.kinds(now[0]) == (AuthKind("personal_access_token"),)


async def test_the_kinds_are_those_that_are_really_taken_in_the_order_of_cards(tmp_path: Path) -> None:
    """Keys first, providers last as configured, introspection once; a closed door wants a key at least."""
    async with gate(tmp_path) as made, issuer() as there:
        providers = (there.endpoint(), there.provider(), there.endpoint(scopes=("x",)))
        full = capsule(providers=providers, personal_tokens=MEMBERS)
        last = [AuthKind("personal_access_token"), AuthKind("o_auth2"), AuthKind("oidc", there.url)]
        assert list(made.access.kinds(full)) == last
        await made.key(full)
        assert list(made.access.kinds(full)) == [AuthKind("agent_key"), *last]
        speaking, _ = await made.key(full, end_users=True)
        assert list(made.access.kinds(full)) == [AuthKind("agent_key"), AuthKind("runtime_token"), *last]
        await made.ring.revoke(speaking)
        assert list(made.access.kinds(full)) == [AuthKind("agent_key"), *last]
        assert made.access.kinds(capsule("b")) == made.access.kinds(capsule("b", door="open")) == ()
        assert made.access.kinds(capsule("b", door="authenticated")) == (AuthKind("agent_key"),)


async def test_providers_are_asked_in_their_order_and_never_about_our_own(tmp_path: Path) -> None:
    """What begins like a key, a token of ours, or is the admin token goes nowhere."""
    async with gate(tmp_path) as made, issuer() as one, issuer() as two:
        a = capsule(providers=(one.provider(), one.endpoint(), two.endpoint()))
        one.active["shared"] = {"active": True, "sub": "first"}
        two.active = {"shared": {"active": True, "sub": "second"}, "own": {"active": True, "sub": "ada"}}
        assert (await made.caller(a, "shared")).owner == f"o_auth2 {one.url}{ASK} first"
        assert (await made.caller(a, "own")).owner == f"o_auth2 {two.url}{ASK} ada"
        signed = await made.caller(a, one.token())
        assert (signed.owner, signed.kind) == (f"oidc {one.url} ada", "oidc")
        one.forms.clear()
        for token in ("sc_ak_" + "0" * 64, "sc_ak_x", "sc_pat_x", "sc_rt_x", ADMIN):
            assert await made.status(a, token) == 401
        assert one.forms == []


@pytest.mark.parametrize("claims", [{"exp": None}, {"aud": None}, {"aud": "other"}, {"exp": 1}])
async def test_a_token_that_is_not_good_enough_is_a_plain_401(tmp_path: Path, claims: dict[str, Any]) -> None:
    """As are those that are forged, and those of an endpoint that fails."""
    async with gate(tmp_path) as made, issuer() as there:
        a = capsule(providers=(there.provider(), there.endpoint()))
        assert await made.status(a, there.token(**claims)) == 401
        assert await made.status(a, there.token(header={"kid": "other"})) == 401
        assert await made.status(a, there.signed_with_public_key()) == 401
        assert await made.status(a, there.unsigned({"alg": "none"})) == 401
        assert await made.status(a, "inactive") == 401
        for status, body in ((500, ""), (302, ""), (200, "<html>")):
            there.answer_with(ASK, status, body)
            assert await made.status(a, "opaque") == 401
        assert await made.status(a, there.token()) == 200


async def test_the_door_takes_the_operators_credentials_alone(tmp_path: Path) -> None:
    """Others that are good: 403; those that are not: 401; an open door takes anybody."""
    async with gate(tmp_path) as made, issuer() as there:
        a = capsule(providers=(there.provider(),), personal_tokens=MEMBERS)
        _, plain = await made.key(a)
        _, operator = await made.key(a, operator=True, end_users=True)
        token = made.access.issue(a, await made.caller(a, operator, "ann")).access_token

        challenges = set()

        async def status(token: str, *end_users: str, of: Capsule = a) -> int:
            try:
                await made.access.operator(of, headers(f"Bearer {token}", end_users=end_users))
            except RefusedError as error:
                challenges.add(dict(error.refusal.headers)["www-authenticate"])
                return error.refusal.status
            return 200

        assert [await status(one) for one in (ADMIN, operator)] == [200, 200]
        assert [await status(one) for one in (plain, PAT, there.token(), token)] == [403] * 4
        assert await status(operator, "ann") == 403
        assert [await status(one) for one in (ADMIN + "x", plain[:-1], "x")] == [401] * 3
        free = capsule(door="open", providers=(there.provider(),))
        assert await status("x", of=free) == 200
        assert await made.status(free, "x") == 401
        shut = capsule("b", door="authenticated")
        assert [await status(one, of=shut) for one in ("x", ADMIN)] == [401, 200]
        realm = 'Bearer realm="sidecar"'
        assert challenges == {realm, f'{realm}, error="insufficient_scope"'}


async def test_each_caller_has_a_rate_of_its_own(tmp_path: Path) -> None:
    """429 with `Retry-After`; those without credentials are told apart by their address."""
    async with gate(tmp_path) as made:
        a, b = capsule(rate=Rate(2, 60.0)), capsule("b", rate=Rate(2, 60.0))

        def wait(of: Capsule, caller: Caller, peer: str | None = None) -> str | None:
            try:
                made.access.admit(of, caller, peer)
            except RefusedError as error:
                return f"{error.refusal.code} {dict(error.refusal.headers)['retry-after']}"
            return None

        _, secret = await made.key(a, end_users=True)
        for caller, peer in (
            (ANONYMOUS, "192.0.2.1"),
            (ANONYMOUS, "192.0.2.2"),
            (await made.caller(a, secret), "192.0.2.1"),
            (await made.caller(a, secret, "ann"), "192.0.2.1"),
        ):
            assert [wait(a, caller, peer) for _ in range(3)] == [None, None, "rate_limited 30"]
        assert wait(b, ANONYMOUS, "192.0.2.1") is None
        assert {wait(capsule(), ANONYMOUS) for _ in range(100)} == {None}


async def test_a_stream_ends_when_its_provider_takes_its_word_back(tmp_path: Path) -> None:
    """An endpoint is asked again while the stream lasts; one that still vouches keeps it open."""
    async with gate(tmp_path) as made, issuer() as there:
        a = capsule(providers=(there.endpoint(),))
        there.active = {"one": {"active": True, "sub": "ada"}, "two": {"active": True, "sub": "bob"}}
        streams = Holds(made.access, clock=made.clock, ask_again=0.05)
        ended: list[str] = []
        kept = []
        for token in ("one", "two"):
            caller = await made.caller(a, token)
            kept.append(streams.hold(lambda: a, caller, partial(ended.append, token)))
        del there.active["one"]
        made.clock.now += 60
        await until(lambda: ended)
        asked = len(there.forms)

        def asked_again() -> bool:
            made.clock.now += 60  # whatever was said until now is old
            return len(there.forms) > asked + 1

        await until(asked_again)
        assert ended == ["one"]
        assert streams.count == 1
        kept[1].release()
        kept[1].release()
        assert streams.count == 0
        await streams.aclose()


async def test_a_stream_ends_with_the_token_that_opened_it(tmp_path: Path) -> None:
    """A signed one at its `exp`, a runtime token after its time, both when the configuration drops what they rest on."""
    async with gate(tmp_path) as made, issuer() as there:
        now = [capsule(providers=(there.provider(),), personal_tokens=MEMBERS)]
        _, secret = await made.key(now[0], end_users=True)
        exchanged = made.access.issue(now[0], await made.caller(now[0], secret, "ann")).access_token
        tokens = {"signed": there.token(exp=int(made.clock.now) + 900), "runtime": exchanged, "pat": PAT}
        ended: list[str] = []
        streams = made.access.streams
        for name, token in tokens.items():
            caller = await made.caller(now[0], token)
            streams.hold(lambda: now[0], caller, partial(ended.append, name))
        streams.recheck("/c/a")
        assert ended == []
        made.clock.now += 900
        streams.recheck("/c/a")
        assert sorted(ended) == ["runtime", "signed"]
        now[0] = capsule(providers=(there.provider(),))
        streams.recheck("/c/a")
        assert sorted(ended) == ["pat", "runtime", "signed"]


async def test_a_credential_that_ended_before_its_stream_began_ends_it_at_once(tmp_path: Path) -> None:
    """There is no gap between the check and the stream."""
    async with gate(tmp_path) as made:
        key_id, secret = await made.key(capsule())
        caller = await made.caller(capsule(), secret)
        await made.ring.revoke(key_id)
        ended: list[str] = []
        hold = made.access.streams.hold(capsule, caller, partial(ended.append, "it"))
        assert ended == ["it"]
        hold.release()


async def test_keys_of_the_moi_view_have_workspaces_and_owners_of_their_own(tmp_path: Path) -> None:
    """They open no capsule by themselves; a stream ends with the configuration that named its key."""
    async with gate(tmp_path) as made:
        keys = MoiKeys([(Secret("one"), "team"), (Secret("two"), "team"), (Secret("three"), "other")])
        made.access.reconfigure(keys)
        found = [made.access.moi_caller(text) for text in ("one", "two", "three")]
        assert [workspace for one in found if one is not None for workspace in one[1:]] == [
            *("team", "team", "other")
        ]
        callers = [one[0] for one in found if one is not None]
        assert len({caller.owner for caller in callers}) == 3
        assert not any("one" in caller.owner or caller.operator for caller in callers)
        for wrong in ("", "on", "one ", "ONE", "\udcff"):
            assert made.access.moi_caller(wrong) is None
        await made.key(capsule())
        assert await made.status(capsule(), "one") == 401
        ended: list[str] = []
        for name, caller in zip(("one", "two", "three"), callers, strict=True):
            made.access.streams.hold(capsule, caller, partial(ended.append, name))
        made.access.reconfigure(MoiKeys([(Secret("one"), "team"), (Secret("three"), "elsewhere")]))
        assert sorted(ended) == ["three", "two"]
