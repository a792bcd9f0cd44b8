"""The card of the MOI view over HTTP: how agents are selected, who sees which, and how requests are refused."""

from __future__ import annotations

import json
from hashlib import sha256
from http.client import HTTPConnection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.support.moi import CARD, DOOR, KEYS, OTHER, TEAM, Home, home, message, problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.everruns import Answer
    from tests.support.moi import Client

ADA = "sc_pat_ada"
INVALID = (400, "ErrParamInvalid")
UNAUTHORIZED = (401, "ErrUnauthorized")
NOT_FOUND = (404, "ErrNotFound")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A sidecar whose view wants keys: one is of the workspace `team`, one of `other`."""
    auth = KEYS % sha256(ADA.encode()).hexdigest()
    with home(tmp_path_factory.mktemp("closed"), auth=auth, members=True) as made:
        made.key("keyed")
        yield made


@pytest.fixture(scope="module")
def team(here: Home) -> Client:
    """A client with a key of `team`."""
    return here.client().using(moi_key=TEAM)


@pytest.fixture(scope="module")
def open_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A sidecar whose view wants no key."""
    with home(tmp_path_factory.mktemp("open")) as made:
        yield made


def named(answer: Answer) -> str:
    """Return whose card it is."""
    assert answer.status == 200, answer.raw
    found: str = answer.json["name"]
    return found


def test_an_agent_is_selected_by_id_or_code(team: Client) -> None:
    """The card comes bare; an id is no code, and a code no id."""
    answer = team.card(agent_id="known")
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json) >= {"name", "capabilities"}
    assert not set(answer.json) & {"code", "msg", "data"}
    assert team.card(agent_code="explore").json == answer.json
    assert problem(team.card(agent_code="known")) == NOT_FOUND
    assert problem(team.card(agent_id="explore")) == NOT_FOUND


def test_a_selector_is_needed_and_two_must_agree(team: Client) -> None:
    """An empty one is none; one that comes twice is no selector."""
    for query in ("", "?", "?agent_id=", "?agent_workspace_id=team", "?agent_id=known&agent_id=known"):
        assert problem(team.send("GET", CARD + query)) == INVALID
    assert named(team.card(agent_id="known", agent_code="explore")) == "known"
    for other in ("ours", "nobody"):
        assert problem(team.card(agent_id=other, agent_code="explore")) == INVALID
    assert problem(team.card(agent_id="known", agent_code="nothing")) == INVALID


def test_a_code_beside_an_id_may_be_one_of_that_agents_workspace(here: Home, team: Client) -> None:
    """Whoever does not see the agent learns nothing of its code, as of an agent that there is not."""
    other = here.client().using(moi_key=OTHER)
    assert problem(other.card(agent_code="elsewhere")) == NOT_FOUND
    assert named(other.card(agent_id="theirs", agent_code="elsewhere")) == "theirs"
    for workspace, status in (("other", 200), ("system", 400)):
        answer = other.card(agent_id="theirs", agent_code="elsewhere", agent_workspace_id=workspace)
        assert answer.status == status
    for stranger in (team, here.client().bearer(here.key("keyed"))):
        told = [stranger.card(agent_id=agent, agent_code="elsewhere") for agent in ("theirs", "nobody")]
        assert [problem(answer) for answer in told] == [INVALID] * 2
        assert len({answer.json["msg"] for answer in told}) == 1


def test_agents_are_seen_from_their_workspace_and_those_of_system_from_all(here: Home, team: Client) -> None:
    """What is not to be seen is told like what there is not, but for the id of the request."""
    other = here.client().using(moi_key=OTHER)
    assert named(team.card(agent_id="ours")) == "ours"
    assert named(other.card(agent_id="theirs")) == "theirs"
    for client in (team, other):
        assert named(client.card(agent_id="known")) == "known"
    told = [other.card(agent_id="ours"), other.card(agent_id="nobody"), team.card(agent_id="theirs")]
    for answer in told:
        assert problem(answer) == NOT_FOUND
        assert answer.json["request_id"] != told[0].json["request_id"] or answer is told[0]
    same = {json.dumps(answer.json | {"request_id": ""}) for answer in told}
    assert len(same) == 1
    assert len({answer.headers["content-length"] for answer in told}) == 1


def test_a_workspace_may_be_the_callers_or_system(here: Home, team: Client) -> None:
    """It is where the agent must be; a code is one of `system` unless another workspace is named."""
    assert named(team.card(agent_id="ours", agent_workspace_id="team")) == "ours"
    assert named(team.card(agent_id="known", agent_workspace_id="system")) == "known"
    assert problem(team.card(agent_id="ours", agent_workspace_id="system")) == NOT_FOUND
    assert problem(team.card(agent_id="known", agent_workspace_id="team")) == NOT_FOUND
    for client, wrong in ((team, "other"), (team, "nonsense"), (here.client().using(moi_key=OTHER), "team")):
        for agent in ("known", "nobody"):
            assert problem(client.card(agent_id=agent, agent_workspace_id=wrong)) == INVALID
    assert named(team.card(agent_code="explore")) == "known"
    assert named(team.card(agent_code="explore", agent_workspace_id="system")) == "known"
    assert named(team.card(agent_code="explore", agent_workspace_id="team")) == "ours"


def test_a_key_comes_in_one_of_three_headers(here: Home) -> None:
    """`X-Workspace-ID` may say whose it is, and must say so rightly."""
    plain = here.client()
    for client in (
        plain.using(moi_key=TEAM),
        plain.using(X_API_Key=TEAM),
        plain.using(X_API_Key=TEAM, X_Workspace_ID="team"),
        plain.bearer(TEAM),
        plain.using(Authorization=f"bearer {TEAM}"),
    ):
        assert named(client.card(agent_id="ours")) == "ours"
    wrong = plain.using(X_API_Key=TEAM, X_Workspace_ID="other")
    assert problem(wrong.card(agent_id="ours")) == (403, "ErrForbidden")


def test_more_than_one_credential_is_too_many(here: Home, open_house: Home) -> None:
    """Whether or not each of them is good, or any is wanted; one that comes twice is two."""
    for place in (here, open_house):
        plain = place.client()
        for client in (
            plain.using(moi_key=TEAM, X_API_Key=TEAM),
            plain.using(moi_key=TEAM, Authorization=f"Bearer {TEAM}"),
            plain.using(X_API_Key="wrong", Authorization="Bearer wrong"),
        ):
            assert problem(client.card(agent_id="known")) == (400, "ErrMultipleAuthCredentials")
        assert twice(place.sidecar.desk)[:2] == (400, "ErrMultipleAuthCredentials")


def twice(desk: str) -> tuple[int, str]:
    """Send one header twice."""
    where = urlsplit(desk)
    connection = HTTPConnection(where.hostname or "", where.port, timeout=20)
    try:
        connection.putrequest("GET", f"{CARD}?agent_id=known")
        for _ in range(2):
            connection.putheader("moi-key", TEAM)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())["code"]
    finally:
        connection.close()


def test_no_credential_and_an_unknown_one_are_refused_alike_before_anything_is_looked_at(here: Home) -> None:
    """401 with a challenge, at the card and at the door, whatever is selected or sent."""
    plain = here.client()
    clients = (
        plain,
        plain.using(moi_key="wrong"),
        plain.using(moi_key=""),
        plain.using(X_API_Key=TEAM + "x"),
        plain.bearer("wrong"),
        plain.using(Authorization=f"Basic {TEAM}"),
        plain.bearer("sc_ak_" + "0" * 64),
        plain.bearer("sc_pat_nobody"),
    )
    told = []
    for client in clients:
        told += [client.card(agent_id="known"), client.card(agent_id="nobody"), client.card()]
        told += [client.call("message/send", message("hi"), agent_id="known")]
        told += [client.send("POST", DOOR, b"no json", Content_Type="text/plain")]
        told += [client.send("POST", DOOR, b"x" * 3_000_000)]
    for answer in told:
        assert problem(answer) == UNAUTHORIZED
    assert len({json.dumps(answer.json | {"request_id": ""}) for answer in told}) == 1


def test_a_capsules_own_credential_sees_that_capsule_alone(here: Home) -> None:
    """From its workspace; any other agent looks as if there were none, those of `system` too."""
    mine = here.client().bearer(here.key("keyed"))
    assert named(mine.card(agent_id="keyed")) == "keyed"
    assert named(mine.card(agent_id="keyed", agent_workspace_id="system")) == "keyed"
    assert problem(mine.card(agent_id="keyed", agent_workspace_id="team")) == INVALID
    for agent in ("known", "ours", "theirs", "nobody", "broken"):
        assert problem(mine.card(agent_id=agent)) == NOT_FOUND
    assert problem(mine.card()) == INVALID
    for header in ("moi-key", "X-API-Key"):
        assert (
            problem(here.client().using(**{header: here.key("keyed")}).card(agent_id="keyed")) == UNAUTHORIZED
        )
    member = here.client().bearer(ADA)
    assert named(member.card(agent_id="ours")) == "ours"
    assert named(member.card(agent_id="ours", agent_workspace_id="team")) == "ours"
    assert problem(member.card(agent_id="known")) == NOT_FOUND


def test_a_key_speaks_for_end_users_where_it_may(here: Home) -> None:
    """Else 403; a runtime token stands for one of them."""
    plain = here.client().bearer(here.key("keyed"), End_User="ada")
    assert problem(plain.card(agent_id="keyed")) == (403, "ErrForbidden")
    may = here.key("keyed", end_users=True)
    assert named(here.client().bearer(may, End_User="ada").card(agent_id="keyed")) == "keyed"
    issued = here.client().bearer(may).send("POST", "/v1/channels/keyed/runtime-auth", End_User="ada")
    token = here.client().bearer(issued.json["access_token"])
    assert named(token.card(agent_id="keyed")) == "keyed"
    assert problem(token.card(agent_id="known")) == NOT_FOUND


def test_a_key_of_the_view_speaks_for_nobody(here: Home, open_house: Home, team: Client) -> None:
    """All who have it are one caller: who names an end user is told so, before and after a card is at hand."""
    for _ in range(2):
        for sent in ({"moi_key": TEAM}, {"X_API_Key": TEAM}, {"Authorization": f"Bearer {TEAM}"}):
            speaking = here.client().using(**sent, End_User="ada")
            assert problem(speaking.card(agent_id="known")) == (403, "ErrForbidden")
            answer = speaking.call("message/send", message("hi"), agent_id="known")
            assert problem(answer) == (403, "ErrForbidden")
        assert named(team.card(agent_id="known")) == "known"
    assert named(open_house.client().using(End_User="ada").card(agent_id="known")) == "known"


def test_a_key_of_the_view_opens_guarded_agents_that_it_sees(here: Home, team: Client) -> None:
    """The operator gave it for the workspace as a whole."""
    assert named(team.card(agent_id="keyed")) == "keyed"
    answer = team.call("message/send", message("hi"), agent_id="keyed")
    assert answer.json["result"]["kind"] == "task"


def test_without_keys_the_view_is_open(open_house: Home) -> None:
    """What is sent is ignored; only a capsule with credentials of its own still wants one."""
    plain = open_house.client()
    for client in (plain, plain.using(moi_key="anything"), plain.bearer("anything")):
        for agent in ("known", "ours", "theirs"):
            assert named(client.card(agent_id=agent)) == agent
    for workspace in ("system", "team"):
        assert (
            plain.card(agent_id="ours", agent_workspace_id=workspace).status
            == (404, 200)[workspace == "team"]
        )
    assert problem(plain.card(agent_id="known", agent_workspace_id="nonsense")) == INVALID
    assert problem(plain.card(agent_id="nobody")) == NOT_FOUND
    key = open_house.key("keyed")
    for client in (plain, plain.using(moi_key="anything"), plain.bearer("anything")):
        assert problem(client.card(agent_id="keyed")) == UNAUTHORIZED
    assert named(plain.bearer(key).card(agent_id="keyed")) == "keyed"
    assert problem(plain.bearer(key).card(agent_id="known")) == NOT_FOUND


def test_an_agent_that_is_not_served_is_told_so_to_who_may_see_it(here: Home, team: Client) -> None:
    """503 with `Retry-After`: its manifest is broken, or it is disabled."""
    for agent in ("broken", "resting"):
        assert problem(team.card(agent_id=agent)) == (503, "ErrServiceUnavailable")
        answer = team.call("message/send", message("hi"), agent_id=agent)
        assert problem(answer) == (503, "ErrServiceUnavailable")
    assert problem(team.card(agent_code="broken")) == (503, "ErrServiceUnavailable")
    assert problem(here.client().card(agent_id="broken")) == UNAUTHORIZED


def test_the_url_comes_from_the_configuration(team: Client) -> None:
    """Whatever `Host` and the headers of proxies say."""
    url = "http://agents.example.org/behind/newmoi/agents/a2a"
    assert team.card(agent_id="known").json["url"] == url
    lies = {"Host": "localhost", "X_Forwarded_Host": "evil.example", "X_Forwarded_Proto": "https"}
    assert team.card(agent_id="known", headers=lies).json["url"] == url


def test_a_card_that_is_known_is_not_sent_again(team: Client) -> None:
    """By its entity tag; it is for one caller, and for ten seconds."""
    answer = team.card(agent_id="known")
    assert answer.headers["cache-control"] == "private, max-age=10"
    etag = answer.headers["etag"]
    again = team.card(agent_id="known", headers={"If_None_Match": etag})
    assert (again.status, again.raw, again.headers["etag"]) == (304, b"", etag)
    assert team.card(agent_id="known", headers={"If_None_Match": '"other"'}).status == 200
    assert team.card(agent_id="ours", headers={"If_None_Match": etag}).status == 200
    head = team.card("HEAD", agent_id="known")
    assert (head.status, head.raw, head.headers["etag"]) == (200, b"", etag)


def test_the_id_of_a_request_is_taken_over_or_made(team: Client) -> None:
    """On answers and refusals; one that no header could hold is none."""
    for answer in (
        team.card(agent_id="known", headers={"X_Request_ID": "mine-1"}),
        team.card(agent_id="nobody", headers={"X_Request_ID": "mine-1"}),
        team.call("tasks/get", {"id": "nothing"}, headers={"X_Request_ID": "mine-1"}, agent_id="known"),
    ):
        assert answer.headers["x-request-id"] == "mine-1"
    assert team.card(agent_id="nobody", headers={"X_Request_ID": "mine-1"}).json["request_id"] == "mine-1"
    made = {team.card(agent_id="known").headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    for given in ("two words", "x" * 129, ""):
        assert team.card(agent_id="known", headers={"X_Request_ID": given}).headers["x-request-id"] not in (
            given,
            "",
        )


def test_other_methods_and_paths_are_refused_in_the_same_shape(team: Client) -> None:
    """405 says what is taken."""
    wrong = team.card("POST", agent_id="known")
    assert problem(wrong) == (405, "ErrParamInvalid")
    assert wrong.headers["allow"] == "GET, HEAD"
    got = team.send("GET", DOOR)
    assert problem(got) == (405, "ErrParamInvalid")
    assert got.headers["allow"] == "POST"
    for path in ("/newmoi/", "/newmoi/agents", "/newmoi/agents/card/", "/newmoi/nothing"):
        assert problem(team.send("GET", path)) == NOT_FOUND


def test_the_desk_is_healthy_and_says_so_in_json(here: Home) -> None:
    """To anybody."""
    answer = here.client().send("GET", "/healthz")
    assert (answer.status, answer.json) == (200, {"status": "ok"})


def test_the_card_stands_beside_the_others_of_its_capsule(here: Home) -> None:
    """For the operator, with where it is."""
    found = {one["view"]: one for one in here.sidecar.api("/api/capsules/known/cards")["cards"]}
    assert found["moi"]["url"] == f"http://agents.example.org/behind{CARD}?agent_id=known"
    assert found["moi"]["card"] == here.client().using(moi_key=TEAM).card(agent_id="known").json
