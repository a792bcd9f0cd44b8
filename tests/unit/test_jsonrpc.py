"""The JSON-RPC envelope."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sidecar.dialects import jsonrpc
from sidecar.dialects.jsonrpc import Request, RequestError, RpcError


def refused(body: bytes) -> tuple[int, Any]:
    """Return the code and the id with which bytes are refused."""
    with pytest.raises(RequestError) as caught:
        jsonrpc.parse(body)
    return caught.value.code, caught.value.id


def envelope(**members: object) -> bytes:
    """Return a request with these members over sane ones."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", **members}).encode()


def test_a_request_is_read() -> None:
    """The three members come out as they were; others beside them are ignored."""
    assert jsonrpc.parse(envelope(params={"id": "x"}, extra=[1])) == Request(1, "tasks/get", {"id": "x"})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{bad",
        b"nothing",
        b'{"jsonrpc":"2.0","id":NaN,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m"} x',
        b"[" * 100_000,
        b"\xff\xfe{\x00}\x00",
    ],
)
def test_what_is_no_json_in_utf8_is_a_parse_error(body: bytes) -> None:
    """B33 (gemstone#38, sansio-jsonrpc#2): -32700, and the id is null."""
    assert refused(body) == (-32700, None)


@pytest.mark.parametrize("body", [b"[]", envelope().join((b"[", b"]")), b"1", b"null", b'"x"', b"true"])
def test_what_is_no_object_is_no_request(body: bytes) -> None:
    """Batches and bare values: -32600, and the id is null."""
    assert refused(body) == (-32600, None)


@pytest.mark.parametrize("request_id", [None, True, False, 1.0, 1.5, {}, {"id": 1}, [], [1]])
def test_an_id_must_be_a_string_or_an_integer(request_id: object) -> None:
    """Anything else is -32600 and comes back as null."""
    assert refused(envelope(id=request_id)) == (-32600, None)


def test_a_missing_id_is_refused() -> None:
    """There are no notifications."""
    assert refused(b'{"jsonrpc":"2.0","method":"tasks/get"}') == (-32600, None)


@pytest.mark.parametrize("number", [0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1])
def test_integers_of_64_bits_are_ids(number: int) -> None:
    """They come back digit by digit, signed or unsigned."""
    request = jsonrpc.parse(envelope(id=number))
    assert type(request.id) is int
    assert json.loads(jsonrpc.result(request.id, {}))["id"] == number


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 123456789012345678901234567890, -(10**400)])
def test_longer_integers_are_refused_and_never_come_back_as_another_number(number: int) -> None:
    """-32600 with a null id, also where no double can hold it either."""
    assert refused(envelope(id=number)) == (-32600, None)


UNTAKEABLE = [
    "9" * 309,
    "-" + "9" * 400,
    "9" * 5000,
    "1e999",
    "-1E+400",
    '"\\ud800"',
    '["\\udfff\\ud800"]',
    '{"\\uda00":1}',
]


@pytest.mark.parametrize("value", UNTAKEABLE)
@pytest.mark.parametrize(
    ("sent", "echoed"), [("7", 7), ('"seven"', "seven"), ("1e999", None), ('"\\ud800"', None)]
)
def test_values_that_cannot_be_taken_are_no_parse_error(value: str, sent: str, echoed: object) -> None:
    """It is JSON: -32600, and a valid id comes back."""
    body = f'{{"jsonrpc":"2.0","id":{sent},"method":"message/send","params":{{"a":[{value}]}}}}'.encode()
    assert refused(body) == (-32600, echoed)


@pytest.mark.parametrize("value", UNTAKEABLE)
def test_ids_that_cannot_be_taken_are_null(value: str) -> None:
    """-32600, whatever is wrong with the id."""
    body = f'{{"jsonrpc":"2.0","id":{value},"method":"tasks/get"}}'.encode()
    assert refused(body) == (-32600, None)


@pytest.mark.parametrize("method", ['"\\ud800"', "1e999"])
def test_methods_that_cannot_be_taken_are_no_parse_error(method: str) -> None:
    """-32600 with the id."""
    assert refused(f'{{"jsonrpc":"2.0","id":1,"method":{method}}}'.encode()) == (-32600, 1)


@pytest.mark.parametrize(
    "value", ["01e999", "1e999,", "NaN,1e999", "-Infinity", "1e999 x", '"\\ud800" x', "0" + "1" * 5000]
)
def test_what_is_no_json_beside_such_values_is_a_parse_error(value: str) -> None:
    """-32700 with a null id."""
    assert refused(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":[{value}]}}'.encode()) == (-32700, None)


def test_an_id_that_looks_like_a_number_that_cannot_be_taken_is_not_sent_back_as_another() -> None:
    """Text that was shortened with the numbers is no id any more; beside nothing else it is one."""
    long = "1" * 5000
    assert refused(f'{{"jsonrpc":"2.0","id":"{long}","method":"m","params":{long}}}'.encode()) == (
        -32600,
        None,
    )
    assert jsonrpc.parse(envelope(id=long)).id == long


def test_bodies_beyond_a_bound_are_not_looked_at_twice() -> None:
    """They are a parse error, which costs nothing more."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"m","params":[1e999]}'
    padded = body + b" " * jsonrpc.LOOKED_AT_AGAIN
    assert refused(body) == (-32600, 1)
    assert refused(padded) == (-32700, None)


@pytest.mark.parametrize("request_id", ["", "1", "0x1", "ü \U0001f600", "a\nb", '"', "null"])
def test_string_ids_come_back_as_the_same_string(request_id: str) -> None:
    """B32 (python-sdk#961, codebase-memory-mcp#253): never as a number."""
    assert jsonrpc.parse(envelope(id=request_id)).id == request_id
    assert json.loads(jsonrpc.error(request_id, -32001, "x"))["id"] == request_id


@pytest.mark.parametrize("version", ["1.0", "2", 2.0, 2, None, ["2.0"]])
def test_another_version_is_refused_with_the_id_echoed(version: object) -> None:
    """-32600; the id is valid, so it comes back."""
    assert refused(envelope(jsonrpc=version, id="a")) == (-32600, "a")


@pytest.mark.parametrize("method", [None, 1, ["tasks/get"], {}])
def test_a_method_must_be_a_string(method: object) -> None:
    """-32600 with the id echoed."""
    assert refused(envelope(method=method, id=7)) == (-32600, 7)


def test_of_members_that_come_twice_the_last_counts() -> None:
    """As in most parsers; the id that is echoed is the one that was used."""
    body = b'{"jsonrpc":"2.0","id":1,"id":"2","method":"a","method":"b"}'
    assert jsonrpc.parse(body) == Request("2", "b", None)


@pytest.mark.parametrize(("params", "named"), [(None, {}), ({}, {}), ({"id": 1}, {"id": 1})])
def test_missing_params_are_none(params: object, named: dict[str, object]) -> None:
    """Missing and null both mean an empty object."""
    assert jsonrpc.params_of(Request(1, "m", params)) == named


@pytest.mark.parametrize("params", [[], [1], "x", 1, 0, False, ""])
def test_params_that_are_no_object_are_invalid(params: object) -> None:
    """Positional parameters are not taken: -32602."""
    with pytest.raises(RpcError) as caught:
        jsonrpc.params_of(Request(1, "m", params))
    assert caught.value.code == -32602


def test_answers_have_exactly_their_members() -> None:
    """`result` or `error`, never both; an error has code and message."""
    assert jsonrpc.result("1", {"a": None}) == b'{"jsonrpc":"2.0","id":"1","result":{"a":null}}'
    answer = jsonrpc.error(None, -32700, 'quoted "{\n"')
    assert json.loads(answer) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32700, "message": 'quoted "{\n"'},
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
ENVELOPES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JSON,
        "id": st.text() | st.integers() | JSON,
        "method": st.just("tasks/get") | JSON,
        "params": JSON,
        "more": JSON,
    },
)


@given(
    st.binary() | ENVELOPES.map(lambda v: json.dumps(v).encode()) | JSON.map(lambda v: json.dumps(v).encode())
)
@example(b'{"id":1e400}')
@example(b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * 1100 + b"]" * 1100 + b"}")
def test_any_bytes_are_a_request_or_are_refused_by_the_rules(body: bytes) -> None:
    """Never another exception; whatever id is echoed is the one that was sent, of the same type."""
    outcome = read(body)
    if isinstance(outcome, RequestError):
        assert outcome.code in (-32700, -32600)
        assert outcome.id is None or outcome.code == -32600
    else:
        assert json.loads(body)["method"] == outcome.method
    if outcome.id is not None:
        assert_sent(body, outcome.id)


def read(body: bytes) -> Request | RequestError:
    """Return the request, or how it was refused."""
    try:
        return jsonrpc.parse(body)
    except RequestError as error:
        return error


def assert_sent(body: bytes, request_id: str | int) -> None:
    """Assert that the body has this id, as another parser sees it."""
    sent = json.loads(body)["id"]
    assert (type(sent), sent) == (type(request_id), request_id)
