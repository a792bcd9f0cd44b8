"""What the desk says, as documents."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from sidecar.desk import api
from sidecar.desk.access import Access
from sidecar.desk.tasks import MOST_STATUS, listed
from sidecar.errors import Problem, RefusedError
from sidecar.events import Task, TaskState
from sidecar.model import CapsuleState, CapsuleStatus, ConfigStatus, LastError, RootStatus

SERVED = CapsuleStatus(
    id="hello",
    path="/c/hello",
    state=CapsuleState.SERVING,
    name="Hello",
    version="1.0",
    port=24000,
    url="localhost:24000",
    session_id="ses_" + "0" * 32,
    methods=("message/send",),
    planes=("files",),
    backend="inbox",
    workers=1,
    tasks={"working": 2},
    warnings=("W",),
    last_error=LastError(1.23456, "line 3: no"),
)
KEYS = (
    "id, name, version, path, state, port, url, session_id, methods, planes, backend, workers, tasks, warnings, "
    "last_error"
)
NEVER_GOOD = CapsuleStatus(id="bad", path="/c/b\udcff", state=CapsuleState.REFUSED)


def headers(*values: str) -> CIMultiDictProxy[str]:
    """Return the headers of a request with these Authorization values."""
    return CIMultiDictProxy(CIMultiDict([("Authorization", value) for value in values]))


def test_the_registry_document_has_the_keys_of_its_contract_in_their_order() -> None:
    """Every row has every key, null where there is nothing; then the configuration, then the roots."""
    document = json.loads(
        orjson.dumps(
            api.registry_document(
                [NEVER_GOOD, SERVED],
                ConfigStatus("/etc/c.yaml", 5.0, LastError(6.0, "no")),
                [RootStatus("/c"), RootStatus("/d", LastError(7.0, "gone"))],
            )
        )
    )
    assert list(document) == ["capsules", "config", "roots"]
    bad, good = document["capsules"]
    assert ", ".join(bad) == ", ".join(good) == KEYS
    nothing = [key for key, value in bad.items() if value is None]
    assert nothing == ["name", "version", "port", "url", "session_id", "backend", "last_error"]
    assert bad["path"] == "/c/b\\udcff"
    assert good["last_error"] == {"at": 1.235, "message": "line 3: no"}
    assert (good["tasks"], good["methods"], good["state"]) == ({"working": 2}, ["message/send"], "serving")
    assert document["config"] == {
        "path": "/etc/c.yaml",
        "loaded_at": 5.0,
        "last_error": {"at": 6.0, "message": "no"},
    }
    assert document["roots"][0] == {"path": "/c", "last_error": None}
    assert document["roots"][1]["last_error"] == {"at": 7.0, "message": "gone"}


def test_a_backend_that_cannot_work_shows_as_the_last_error_unless_a_file_is_wrong_too() -> None:
    """It is no older manifest, so `/readyz` does not count it as one."""
    away = CapsuleStatus(
        "far", "/c/far", CapsuleState.SERVING, trouble=LastError(5.0, "http://x cannot be reached")
    )
    document = api.capsule_document(away)
    assert document["last_error"] == {"at": 5.0, "message": "http://x cannot be reached"}
    both = api.capsule_document(replace(away, last_error=LastError(6.0, "line 3: no")))
    assert both["last_error"] == {"at": 6.0, "message": "line 3: no"}
    ready = api.ready_document(
        ready=True, detail={}, capsules=[away], config=ConfigStatus(None, 1.0), roots=[]
    )
    assert ready["last_good"] == []


@given(st.text(alphabet=st.characters(codec=None)))
def test_any_name_of_the_file_system_can_be_written(name: str) -> None:
    """Paths, names and messages that are no UTF-8 do not break the document."""
    row = CapsuleStatus(
        "x", name, CapsuleState.REFUSED, name, last_error=LastError(1.0, name), warnings=(name,)
    )
    assert orjson.dumps(api.capsule_document(row))


def test_readiness_counts_every_state_and_names_those_that_need_a_look() -> None:
    """Counts are complete, names bounded; a capsule served by its last good manifest is named too."""
    rows = [
        SERVED,
        CapsuleStatus("fine", "/c/f", CapsuleState.SERVING),
        *(CapsuleStatus(f"u{i:03}", "/c", CapsuleState.UNBOUND) for i in range(100)),
    ]
    document = api.ready_document(
        ready=False,
        detail={"draining": True, "untried": 3},
        capsules=rows,
        config=ConfigStatus(None, 1.0, LastError(1.0, "bad")),
        roots=[RootStatus("/c"), RootStatus("/d", LastError(2.0, "gone"))],
    )
    assert document["status"] == "draining"
    assert document["capsules"] == {"serving": 2, "unbound": 100, "refused": 0, "disabled": 0, "artifact": 0}
    assert document["unbound"] == [f"u{i:03}" for i in range(api.MOST_NAMED)]
    assert (document["refused"], document["last_good"]) == ([], ["hello"])
    assert document["config"]["last_error"]["message"] == "bad"
    assert [root["path"] for root in document["roots"]] == ["/d"]
    assert document["untried"] == 3


def test_a_reload_says_whether_anything_changed_or_every_problem() -> None:
    """200 with `changed`; 422 in the shape of a refusal with the problems, each with its place."""
    assert api.reload_answer(api.ReloadResult(changed=True)).body == b'{"changed":true}'
    unchanged = api.ReloadResult(loaded_at=1700000000.12345)
    assert api.reload_answer(unchanged).body == b'{"changed":false,"loaded_at":1700000000.123}'
    problem = Problem("/c.yaml", 3, 5, "E-CFG", "listen.hst", "unknown key; did you mean host?")
    refused = api.reload_answer(api.ReloadResult(problems=(problem, problem)))
    body = json.loads(refused.body)
    assert (refused.status, body["error"]) == (422, "config_refused")
    assert body["problems"] == [str(problem)] * 2


@pytest.mark.parametrize("value", ["Bearer s3cret", "bearer  s3cret", "BEARER s3cret "])
def test_the_right_token_is_let_in(value: str) -> None:
    """The scheme's case and the number of blanks do not matter (RFC 6750, RFC 9110 section 11.1)."""
    Access("s3cret").require(headers(value))


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ((), None),
        (("Bearer wrong",), "invalid_token"),
        (("Bearer s3cre",), "invalid_token"),
        (("Bearer s3cret=",), "invalid_token"),
        (("Bearer S3CRET",), "invalid_token"),
        (("Bearer s3cret", "Bearer s3cret"), "invalid_request"),
        (("Bearer s3cret, Bearer s3cret",), "invalid_request"),
        (("Basic czpzM2NyZXQ=",), "invalid_request"),
        (("s3cret",), "invalid_request"),
        (("Bearer",), "invalid_request"),
        (("Bearer s3cret extra",), "invalid_request"),
        (("Bearers3cret",), "invalid_request"),
        (("",), "invalid_request"),
    ],
)
def test_anything_else_is_refused_with_a_challenge(values: tuple[str, ...], error: str | None) -> None:
    """No, a wrong, a doubled or another scheme's credential is 401 with WWW-Authenticate (RFC 6750 section 3)."""
    with pytest.raises(RefusedError) as refused:
        Access("s3cret").require(headers(*values))
    assert (refused.value.refusal.status, refused.value.refusal.code) == (401, "unauthorized")
    ((name, challenge),) = refused.value.refusal.headers
    assert (name, challenge.startswith("Bearer realm=")) == ("www-authenticate", True)
    assert (f'error="{error}"' in challenge) == (error is not None)
    assert "s3cret" not in refused.value.refusal.message


@given(st.text())
def test_no_text_but_the_token_opens_the_desk(text: str) -> None:
    """Whatever the header holds, it is refused in the one shape."""
    with pytest.raises(RefusedError):
        Access("s3cret").require(headers(f"Bearer {text}"))


def test_without_authentication_everyone_is_let_in() -> None:
    """`desk.auth: none` takes any credentials, and none."""
    values: list[Any] = [(), ("Bearer x",), ("Basic x", "y")]
    for given_values in values:
        Access(None).require(headers(*given_values))


@pytest.mark.parametrize("text", [None, "", "x" * MOST_STATUS, "x" * (MOST_STATUS + 1)])
def test_a_list_of_tasks_has_the_beginning_of_a_long_status(text: str | None) -> None:
    """A question may be as long as a worker likes; a hundred of them are one answer."""
    row = listed(Task("tsk_1", "ctx_1", "operator", TaskState.INPUT_REQUIRED, 0.0, status=text))
    assert row["status"] == (text if text is None else text[:MOST_STATUS] + "…" * (len(text) > MOST_STATUS))
    assert row["waits_for_input"]
