"""The page's own paths on the desk: its files, signing in by a link, and what a session may do."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from sidecar.model import CapsuleState, CapsuleStatus
from tests.support.desk import TOKEN, Running, refusal_of, running_desk
from tests.support.rawhttp import Answer, exchange, request_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BROWSER = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
JSON = {"Content-Type": "application/json"}


@pytest_asyncio.fixture
async def running() -> AsyncIterator[Running]:
    """A desk that asks for a token."""
    async with running_desk() as stage:
        stage.view.rows = [CapsuleStatus("a", "/c/a", CapsuleState.SERVING, session_id="ses_1")]
        yield stage


async def post(running: Running, path: str, body: Any = None, **headers: str) -> Answer:
    """Send JSON as a page does; keywords are headers, with `_` for `-`."""
    data = json.dumps(body).encode() if body is not None else b""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return await exchange(running.port, request_bytes("POST", path, headers=JSON | fields, body=data))


async def link(running: Running) -> str:
    """Ask for a link as `sidecar link` does, and return its token."""
    answer = await post(running, "/api/link", Authorization=TOKEN["Authorization"])
    told = json.loads(answer.body)
    assert told["expires_in"] == 60
    base, _, token = told["url"].partition("/#link=")
    assert base == f"http://localhost:{running.port}"
    return str(token)


@dataclass(frozen=True, slots=True)
class Signed:
    """The two halves of a session, as headers."""

    cookie: dict[str, str]
    key: dict[str, str]

    @property
    def both(self) -> dict[str, str]:
        """What the page sends."""
        return self.cookie | self.key


async def sign_in(running: Running, **headers: str) -> tuple[Signed, Answer]:
    """Sign in by a fresh link."""
    answer = await post(running, "/page/sign-in", {"link": await link(running)}, **headers)
    assert answer.status == 200
    cookie = answer.headers["set-cookie"].partition(";")[0]
    return Signed({"Cookie": cookie}, {"x-sidecar-page": json.loads(answer.body)["key"]}), answer


async def test_a_browser_without_a_session_is_shown_the_page_that_asks_for_a_link(running: Running) -> None:
    """401 with the page, which holds nothing of the registry; programs get the refusal in its one shape."""
    shown = await running.get("/", headers=BROWSER)
    assert shown.status == 401
    assert shown.headers["content-type"] == "text/html; charset=utf-8"
    assert shown.headers["www-authenticate"].startswith("Bearer ")
    assert shown.headers["cache-control"] == "no-store"
    assert b'src="page/app.js"' in shown.body
    assert refusal_of(await running.get("/")) == (401, "unauthorized")


async def test_a_link_signs_a_browser_in_once(running: Running) -> None:
    """The cookie is out of reach of scripts and other sites; the key alone and the cookie alone open nothing."""
    signed, answer = await sign_in(running)
    attributes = answer.headers["set-cookie"].split("; ")[1:]
    assert attributes == ["Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Strict"]
    assert answer.headers["cache-control"] == "no-store"
    assert (await running.get("/api/capsules", headers=signed.both)).status == 200
    for half in (signed.cookie, signed.key):
        assert refusal_of(await running.get("/api/capsules", headers=half)) == (401, "unauthorized")
    assert (await running.get("/", headers=BROWSER | signed.cookie)).status == 200


async def test_a_link_that_was_used_signs_nobody_in(running: Running) -> None:
    """Nor does what was never one; it says what to do."""
    token = await link(running)
    assert (await post(running, "/page/sign-in", {"link": token})).status == 200
    for again in (token, "", "x" * 43):
        answer = await post(running, "/page/sign-in", {"link": again})
        assert refusal_of(answer) == (401, "unauthorized")
        assert "sidecar link" in json.loads(answer.body)["message"]
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "body", [None, [], {}, {"link": 1}, {"link": "x", "more": 1}, "x", {"link": "\ud800"}]
)
async def test_signing_in_takes_one_shape(running: Running, body: Any) -> None:
    """Anything else is refused before the link is looked at."""
    assert refusal_of(await post(running, "/page/sign-in", body)) == (400, "bad_request")


async def test_a_form_of_another_site_cannot_sign_in_or_act(running: Running) -> None:
    """An Origin that is not the desk's is refused everywhere, and what a form can send is no JSON."""
    signed, _ = await sign_in(running)
    foreign = {"Origin": "https://evil.example"} | signed.both
    for path in ("/page/sign-in", "/page/sign-out", "/api/reload", "/api/capsules/a/messages"):
        assert refusal_of(await post(running, path, {}, **foreign)) == (403, "origin_not_allowed")
    form = request_bytes(
        "POST", "/page/sign-in", headers={"Content-Type": "text/plain"}, body=b'{"link": "x"}'
    )
    assert refusal_of(await exchange(running.port, form)) == (415, "unsupported_media_type")
    assert running.reloads == 0


async def test_behind_tls_the_cookie_goes_over_tls_alone(running: Running) -> None:
    """A browser says where it is in the Origin; only that can tell, since the proxy ends TLS."""
    token = await link(running)
    headers = {"Host": "localhost", "Origin": "https://localhost"}
    answer = await post(running, "/page/sign-in", {"link": token}, **headers)
    assert answer.headers["set-cookie"].endswith("; SameSite=Strict; Secure")


async def test_a_page_makes_no_links(running: Running) -> None:
    """Or a session would never have to end."""
    signed, _ = await sign_in(running)
    answer = await post(running, "/api/link", **signed.both)
    assert refusal_of(answer) == (403, "forbidden")
    assert refusal_of(await post(running, "/api/link")) == (401, "unauthorized")


async def test_signing_out_ends_the_session_and_its_streams_at_once(running: Running) -> None:
    """Other sessions go on."""
    signed, _ = await sign_in(running)
    other, _ = await sign_in(running)
    async with asyncio.timeout(10):
        streams = []
        for one in (signed, other):
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(request_bytes("GET", "/api/events", headers=one.both))
            await reader.readuntil(b'"more":false')
            streams.append((reader, writer))
        answer = await post(running, "/page/sign-out", **signed.both)
        assert (answer.status, answer.headers["set-cookie"].split("; ")[2]) == (204, "Max-Age=0")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await streams[0][0].readuntil(b"never")
        running.view.rows = []
        await streams[1][0].readuntil(b'"gone":["a"]')
        for _, writer in streams:
            writer.close()
    assert refusal_of(await running.get("/api/capsules", headers=signed.both)) == (401, "unauthorized")
    assert refusal_of(await post(running, "/page/sign-out", **signed.both)) == (401, "unauthorized")
    assert (await running.get("/api/capsules", headers=other.both)).status == 200


@pytest.mark.parametrize("name", ["app.js", "style.css", "icon.svg", "list.js"])
async def test_the_page_has_files_of_its_own_for_everybody(running: Running, name: str) -> None:
    """They are those of the package, kept by browsers for as long as they do not change."""
    answer = await running.get(f"/page/{name}")
    assert answer.status == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    known = await running.get(f"/page/{name}", headers={"If-None-Match": answer.headers["etag"]})
    assert (known.status, known.body) == (304, b"")
    assert (await running.get(f"/page/{name}", method="HEAD")).status == 200


@pytest.mark.parametrize(
    "path", ["/page/", "/page/index.html", "/page/../api.py", "/page/%2e%2e%2fapi.py", "/page/x.js", "/page"]
)
async def test_nothing_else_is_a_file_of_the_page(running: Running, path: str) -> None:
    """Names are looked up, never opened."""
    assert refusal_of(await running.get(path)) == (404, "not_found")


async def test_the_page_may_load_and_run_nothing_but_its_own(running: Running) -> None:
    """A strict policy, without a place for scripts or styles in the markup, and no frame around it."""
    answer = await running.get("/", headers=BROWSER | TOKEN)
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    for directive in (
        "default-src 'none'",
        "script-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
    ):
        assert directive in policy
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    markup = answer.body.decode()
    assert [word for word in ("<style", "style=", "onclick", "//", "<script>") if word in markup] == [
        "//"  # of the example of a link
    ]


async def test_an_open_desk_asks_for_nothing() -> None:
    """`desk.auth: none`: the link is the plain address, and the page opens by itself."""
    async with running_desk(token=None) as running:
        answer = await post(running, "/api/link")
        url = f"http://localhost:{running.port}/"
        assert json.loads(answer.body) == {"url": url, "expires_in": None}
        assert (await running.get("/", headers=BROWSER)).status == 200
        assert (await running.get("/api/capsules")).status == 200


async def test_sessions_of_capsules_are_listed(running: Running) -> None:
    """`/api/sessions` has one entry per session, and a tag by which it is known again."""
    answer = await running.ask("/api/sessions")
    assert json.loads(answer.body) == {
        "sessions": [
            {
                "session_id": "ses_1",
                "capsule": "a",
                "name": None,
                "state": "serving",
                "url": None,
                "workers": 0,
                "tasks": {},
            }
        ]
    }
    known = {"If-None-Match": answer.headers["etag"]}
    assert (await running.ask("/api/sessions", headers=known)).status == 304
