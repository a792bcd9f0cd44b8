"""Who sees which sessions of the Everruns view, over HTTP: keys, end users, runtime tokens, strangers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.process.test_everruns_card import problem_of
from tests.process.test_everruns_sessions import ended
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from tests.support.everruns import Channel, House


def keyed(here: House, **wishes: object) -> Channel:
    """Return a caller with a key of its own."""
    return here.channel("keyed", here.key("keyed", **wishes)[1])


def test_every_credential_that_is_not_good_is_refused_alike(here: House) -> None:
    """None, a wrong one, one of another agent, an expired and a revoked one: 401, and nothing tells them apart."""
    expired, revoked = here.key("keyed", expires=1), here.key("keyed")
    here.operate(f"/api/capsules/keyed/keys/{revoked[0]}", method="DELETE")
    until_sync(lambda: here.channel("keyed", expired[1]).get().status == 401, what="expired")
    told = set()
    secrets = (None, "wrong", "sc_ak_" + "0" * 64, here.key("other")[1], expired[1], revoked[1])
    for secret in secrets:
        for path in ("", "/sessions"):
            answer = here.channel("keyed", secret).get(path)
            assert problem_of(answer) == (401, "unauthorized")
            told.add(answer.raw.replace(path.encode() + b'"', b'"'))
    assert len(told) == 1


def test_the_scheme_may_be_in_any_case_and_the_header_comes_once(here: House) -> None:
    """`bearer` is `Bearer`; another scheme is none."""
    secret = here.key("keyed")[1]
    channel = here.channel("keyed")
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert channel.get(Authorization=f"{scheme} {secret}").status == 200
    for header in (f"Basic {secret}", secret, f"Bearer {secret} {secret}"):
        assert channel.get(Authorization=header).status == 401


def test_the_card_names_what_is_accepted(here: House) -> None:
    """`agent_key`, and `runtime_token` as soon as a key may speak for end users; each has its type alone."""
    assert here.channel("other", here.key("other")[1]).get().json["auth"] == [{"type": "agent_key"}]
    channel = keyed(here, end_users=True)
    wanted = [{"type": "agent_key"}, {"type": "runtime_token"}]
    until_sync(lambda: channel.get().json["auth"] == wanted, what="the card follows")


def test_somebody_elses_session_looks_like_a_missing_one(here: House) -> None:
    """Reading it, its events, its stream, posting to it, cancelling it: 404; the list is empty."""
    a, b = keyed(here), keyed(here)
    session = a.session("mine")
    a.say(session, f"hold {here.gates / 'mine'}")
    missing = "session_" + "0" * 32
    for method, path in (
        ("GET", ""),
        ("GET", "/events"),
        ("GET", "/sse"),
        ("POST", "/messages"),
        ("POST", "/cancel"),
    ):
        body = {"message": {"role": "user", "content": [{"type": "text", "text": "x"}]}}
        given = body if path == "/messages" else None
        theirs = b.ask(method, f"/sessions/{session}{path}", given)
        nobodys = b.ask(method, f"/sessions/{missing}{path}", given)
        assert problem_of(theirs) == (404, "session_not_found")
        assert theirs.raw.replace(session.encode(), missing.encode()) == nobodys.raw
    assert b.get("/sessions").json == {"data": []}
    assert problem_of(here.channel("other", here.key("other")[1]).get(f"/sessions/{session}"))[0] == 404
    (here.gates / "mine").touch()
    assert ended(a, session)[-1]["type"] == "turn.completed"


def test_end_users_have_sessions_of_their_own(here: House) -> None:
    """Those of one are invisible to another one, and to the bare key."""
    bare = keyed(here, end_users=True)
    ada, bob = bare.with_key(bare.key, "ada"), bare.with_key(bare.key, "bob")
    session = ada.session()
    assert ada.get(f"/sessions/{session}").status == 200
    for other in (bob, bare):
        assert problem_of(other.get(f"/sessions/{session}")) == (404, "session_not_found")
        assert other.get("/sessions").json == {"data": []}
    assert bare.with_key(bare.key, "x" * 256).get().status == 200
    for wrong in ("x" * 257, "", " ", "a\tb"):
        assert problem_of(bare.with_key(bare.key, wrong).get()) == (403, "forbidden")
    may_not = keyed(here)
    assert problem_of(may_not.with_key(may_not.key, "ada").get()) == (403, "forbidden")


def test_a_runtime_token_is_its_end_user_on_its_channel(here: House) -> None:
    """It lists the same sessions; it cannot speak for others, be exchanged, or open another agent."""
    bare = keyed(here, end_users=True)
    ada = bare.with_key(bare.key, "ada")
    session = ada.session()
    issued = ada.post("/runtime-auth")
    assert issued.status == 200
    assert issued.headers["cache-control"] == "no-store"
    told = issued.json
    assert (told["token_type"], told["expires_in"]) == ("Bearer", 900)
    assert told["virtual_user_id"] == ada.post("/runtime-auth").json["virtual_user_id"]
    assert told.keys() == {"access_token", "token_type", "expires_in", "virtual_user_id"}
    token = bare.with_key(told["access_token"])
    assert [one["id"] for one in token.get("/sessions").json["data"]] == [session]
    token.say(session, "hello")
    ended(token, session)
    assert problem_of(bare.with_key(token.key, "ada").get("/sessions")) == (403, "forbidden")
    assert problem_of(token.post("/runtime-auth")) == (401, "unauthorized")
    assert problem_of(here.channel("other", token.key).get()) == (401, "unauthorized")
    for broken in (f"{token.key}x", str(token.key)[:-1], str(token.key).replace(".", "..")):
        assert problem_of(bare.with_key(broken).get()) == (401, "unauthorized")


def test_only_a_key_that_may_is_exchanged_and_only_for_somebody(here: House) -> None:
    """403 without an end user, or for a key that may not; an open agent has nothing to exchange."""
    assert problem_of(keyed(here, end_users=True).post("/runtime-auth")) == (403, "forbidden")
    may_not = keyed(here)
    assert problem_of(may_not.post("/runtime-auth")) == (403, "forbidden")
    assert problem_of(may_not.with_key(may_not.key, "ada").post("/runtime-auth")) == (403, "forbidden")
    assert here.channel("plain").post("/runtime-auth").status in (401, 403)


def test_a_rotated_key_has_two_secrets_until_the_overlap_ends(here: House) -> None:
    """The same key and the same sessions; 169 hours are too many; revoked, neither secret is good."""
    identity, secret = here.key("keyed")
    old = here.channel("keyed", secret)
    session = old.session()
    rotate = f"/api/capsules/keyed/keys/{identity}/rotate"
    assert here.operate(rotate, {"overlap": 169}).status == 400
    rotated = here.operate(rotate, {"overlap": 24}).json
    assert rotated["key_id"] == identity
    new = here.channel("keyed", rotated["key"])
    for channel in (old, new):
        assert [one["id"] for one in channel.get("/sessions").json["data"]] == [session]
    here.operate(f"/api/capsules/keyed/keys/{identity}", method="DELETE")
    for channel in (old, new):
        assert problem_of(channel.get("/sessions")) == (401, "unauthorized")


def test_a_revoked_key_ends_the_streams_that_it_opened(here: House) -> None:
    """They are told so, and show nothing of what comes later; those of another key go on."""
    identity, secret = here.key("keyed")
    channel, other = here.channel("keyed", secret), keyed(here)
    session, kept = channel.session(), other.session()
    with channel.stream(session) as stream, other.stream(kept) as going_on:
        stream.next()
        here.operate(f"/api/capsules/keyed/keys/{identity}", method="DELETE")
        (frame,) = stream.rest()
        assert (frame.event, frame.data["reason"]) == ("disconnecting", "credential_ended")
        other.say(kept, "hello")
        going_on.until("turn.completed")


def test_sessions_stay_with_their_owner_when_the_agent_is_opened_or_closed(here: House) -> None:
    """Sessions of an open agent's callers are not those of a key."""
    here.sidecar.port("closing")
    stranger = here.channel("closing")
    session = stranger.session()
    assert here.channel("closing").get(f"/sessions/{session}").status == 200
    closed = here.channel("closing", here.key("closing")[1])
    assert problem_of(closed.get(f"/sessions/{session}")) == (404, "session_not_found")
    assert problem_of(stranger.get(f"/sessions/{session}")) == (401, "unauthorized")
