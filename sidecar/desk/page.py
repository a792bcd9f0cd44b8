"""The page: its files, as they lie in the package, and how a browser signs in to it."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import orjson
from aiohttp import hdrs

from sidecar.desk import api
from sidecar.errors import RefusedError, refusal
from sidecar.model import Answer
from sidecar.web.answers import etag_matches, json_answer
from sidecar.web.body import read_json_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from sidecar.desk.access import Access
    from sidecar.desk.sign_in import SignIn

PAGE: Final = "/"
FILE: Final = "/page/{file}"
SIGN_IN: Final = "/page/sign-in"
SIGN_OUT: Final = "/page/sign-out"
LINK: Final = "/api/link"
METHODS: Final = {
    PAGE: (hdrs.METH_GET, hdrs.METH_HEAD),
    FILE: (hdrs.METH_GET, hdrs.METH_HEAD),
    SIGN_IN: (hdrs.METH_POST,),
    SIGN_OUT: (hdrs.METH_POST,),
    LINK: (hdrs.METH_POST,),
}

TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""What the page may load and do (Content Security Policy Level 3): files and calls of its own desk. No text becomes
markup, whatever the script does with it (Trusted Types)."""
HEADERS: Final = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=(), clipboard-write=(self)"),
)
CHALLENGE: Final = ("www-authenticate", 'Bearer realm="sidecar desk"')

BODY: Final = 4 * 1024
BODY_TIMEOUT: Final = 15.0

_SHAPE: Final = refusal("bad_request", 'Send a JSON object with "link", the part of the link behind #link=.')
_OLD_LINK: Final = refusal(
    "unauthorized", "This link was used before, or is too old: sidecar link prints a new one.", CHALLENGE
)
_SIGNED_OUT: Final = refusal("unauthorized", "Open the page by a link: sidecar link prints one.", CHALLENGE)
_NO_FILE: Final = refusal("not_found", "There is nothing at this path.")
_ADMIN_ONLY: Final = refusal(
    "forbidden", "A page makes no links: send the admin token as a Bearer, as sidecar link does."
)


class Page:
    """What the page's own paths do. `url` returns the desk's base URL as browsers reach it."""

    def __init__(self, sign_in: SignIn, url: Callable[[], str]) -> None:
        self._sign_in = sign_in
        self._url = url
        self._files = {
            entry.name: _file(entry.name, entry.read_bytes())
            for entry in (files("sidecar.desk") / "page").iterdir()
            if entry.name.rpartition(".")[2] in TYPES
        }

    async def answer(self, request: web.BaseRequest, path: str, access: Access) -> Answer:
        """Answer a request to one of the paths of `METHODS`. Raises RefusedError."""
        if path == PAGE:
            return self._show(request, access)
        if path == LINK:
            return self._linked(request, access)
        if path == SIGN_IN:
            return await self._signed_in(request)
        if path == SIGN_OUT:
            return self._signed_out(request)
        return self._asset(request, path.rpartition("/")[2])

    def link(self, access: Access) -> str:
        """Return a link that opens the page: once and for a minute, unless the desk is open to all."""
        base = f"{self._url().rstrip('/')}/"
        # what is behind # goes to no server, no log and no other page
        return base if access.open else f"{base}#link={self._sign_in.link()}"

    def _linked(self, request: web.BaseRequest, access: Access) -> Answer:
        """Answer a request for a link, which takes the admin token itself. Raises RefusedError."""
        if not access.open and hdrs.AUTHORIZATION not in request.headers:
            raise RefusedError(_ADMIN_ONLY)
        life = None if access.open else int(self._sign_in.link_life)
        return json_answer({"url": self.link(access), "expires_in": life}, api.UNCACHED)

    def _show(self, request: web.BaseRequest, access: Access) -> Answer:
        """Answer `/`: the page, with 401 for who has not signed in, so that it can ask for a link. Raises RefusedError."""
        whole, known = self._files["index.html"]
        if self._sign_in.visitor(request.headers) is None:
            try:
                access.require(request.headers)
            except RefusedError as error:
                if "text/html" not in request.headers.get(hdrs.ACCEPT, ""):
                    raise
                headers = (*whole.headers[:1], *HEADERS, api.UNCACHED, *error.refusal.headers)
                return Answer(error.refusal.status, headers, whole.body)
        return _unless_known(request, whole, known)

    def _asset(self, request: web.BaseRequest, name: str) -> Answer:
        """Answer for one of the page's files. Raises RefusedError."""
        if name not in self._files or name == "index.html":
            raise RefusedError(_NO_FILE)
        return _unless_known(request, *self._files[name])

    async def _signed_in(self, request: web.BaseRequest) -> Answer:
        """Open a session by a link: the cookie goes into the browser's jar, the key to the page. Raises RefusedError."""
        opened = self._sign_in.open(token_of(await read_json_body(request, limit=BODY, within=BODY_TIMEOUT)))
        if opened is None:
            raise RefusedError(_OLD_LINK)
        told = {"key": opened.key, "expires_in": int(self._sign_in.life)}
        return json_answer(told, api.UNCACHED, self._cookie(request, opened.cookie, int(self._sign_in.life)))

    def _signed_out(self, request: web.BaseRequest) -> Answer:
        """End the session of a page, and what it holds open. Raises RefusedError."""
        session = self._sign_in.find(request.headers)
        if session is None:
            raise RefusedError(_SIGNED_OUT)
        self._sign_in.end(session)
        return Answer(204, (api.UNCACHED, self._cookie(request, "", 0)))

    def _cookie(self, request: web.BaseRequest, value: str, life: int) -> tuple[str, str]:
        # a browser sends the origin along with each POST; behind a proxy it is the one to know about TLS
        secure = "; Secure" if urlsplit(request.headers.get(hdrs.ORIGIN, "")).scheme == "https" else ""
        name = self._sign_in.cookie
        return "set-cookie", f"{name}={value}; Path=/; Max-Age={life}; HttpOnly; SameSite=Strict{secure}"


def token_of(body: bytes) -> str:
    """Return the token of a body `{"link": TOKEN}`. Raises RefusedError."""
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise RefusedError(_SHAPE) from None
    if type(told) is not dict or told.keys() != {"link"} or type(told["link"]) is not str:
        raise RefusedError(_SHAPE)
    token: str = told["link"]
    return token


def _file(name: str, body: bytes) -> tuple[Answer, str]:
    etag = f'"{sha256(body).hexdigest()[:32]}"'
    headers = (("content-type", TYPES[name.rpartition(".")[2]]), *HEADERS, ("etag", etag))
    return Answer(200, (*headers, ("cache-control", "no-cache")), body), etag


def _unless_known(request: web.BaseRequest, whole: Answer, etag: str) -> Answer:
    given = ", ".join(request.headers.getall(hdrs.IF_NONE_MATCH, ())) or None
    return Answer(304, (*HEADERS, ("etag", etag))) if etag_matches(given, etag) else whole
