"""A real OpenID Connect issuer and introspection endpoint on loopback, which can be told to misbehave."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
import warnings
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from aiohttp import web
from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey

from sidecar.model import ProviderSettings, Secret

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Key = ECKey | RSAKey | OKPKey

DISCOVERY = "/.well-known/openid-configuration"
JWKS = "/keys"
ASK = "/introspect"
AUDIENCE = "sidecar"


def b64(data: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """The server. `asked` counts requests by path; `answers` takes the place of what it would say at a path."""

    def __init__(self) -> None:
        self.port = 0
        self.url = ""
        self.keys: dict[str, Key] = {"k1": ECKey.generate_key("P-256")}
        self.facts: dict[str, dict[str, Any]] = {}
        self.asked: dict[str, int] = {}
        self.answers: dict[str, Callable[[], Awaitable[web.Response]]] = {}
        self.active: dict[str, dict[str, Any]] = {}
        self.forms: list[dict[str, list[str]]] = []
        self.authorizations: list[str | None] = []
        self.let_go = asyncio.Event()

    def provider(self, **more: Any) -> ProviderSettings:
        """Return the settings of an OpenID Connect provider that is this one."""
        settings = {"kind": "oidc", "url": self.url, "audiences": (AUDIENCE,), "allow_private": True}
        return ProviderSettings(**{**settings, **more})

    def endpoint(self, **more: Any) -> ProviderSettings:
        """Return the settings of an introspection endpoint that is this one."""
        settings = {"kind": "introspection", "url": self.url + ASK, "allow_private": True}
        who = {"client_id": "side:car", "client_secret": Secret("s+cret")}
        return ProviderSettings(**{**settings, **who, **more})

    def claims(self, **more: Any) -> dict[str, Any]:
        """Return good claims; None takes one out."""
        good = {"iss": self.url, "aud": AUDIENCE, "sub": "ada", "exp": int(time.time()) + 600}
        return {name: value for name, value in {**good, **more}.items() if value is not None}

    def token(
        self,
        kid: str | None = "k1",
        *,
        alg: str = "ES256",
        key: Any = None,
        header: Any = None,
        **claims: Any,
    ) -> str:
        """Return a signed token."""
        head = {"alg": alg, **({} if kid is None else {"kid": kid}), **(header or {})}
        signs = key or self.keys[kid or "k1"]
        registry = jws.JWSRegistry(strict_check_header=False, algorithms=[alg])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)  # of EdDSA, by its older name
            return jws.serialize_compact(
                head, json.dumps(self.claims(**claims)), signs, [alg], registry=registry
            )

    def unsigned(self, header: dict[str, Any], signature: str = "", **claims: Any) -> str:
        """Return a token whose signature is anything."""
        return f"{b64(json.dumps(header).encode())}.{b64(json.dumps(self.claims(**claims)).encode())}.{signature}"

    def signed_with_public_key(self) -> str:
        """Return a token for which the public key, which everybody knows, is taken as a shared secret."""
        public = self.keys["k1"].as_pem(private=False)
        signed = self.unsigned({"alg": "HS256", "kid": "k1"}).removesuffix(".")
        return f"{signed}.{b64(hmac.digest(public, signed.encode(), 'sha256'))}"

    def answer_with(self, path: str, status: int = 200, body: str = "", **headers: str) -> None:
        """Have a path answer so from now on."""

        async def answer() -> web.Response:
            return web.Response(status=status, text=body, headers=headers)

        self.answers[path] = answer

    def hang(self, path: str) -> None:
        """Have a path answer nothing until the end."""

        async def answer() -> web.Response:
            await self.let_go.wait()
            return web.Response(status=500)

        self.answers[path] = answer

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer."""
        path = request.path
        self.asked[path] = self.asked.get(path, 0) + 1
        if path in self.answers:
            return await self.answers[path]()
        if path == DISCOVERY:
            return web.json_response({"issuer": self.url, "jwks_uri": self.url + JWKS})
        if path == JWKS:
            listed = [
                {**key.as_dict(private=False), "kid": kid, **self.facts.get(kid, {})}
                for kid, key in self.keys.items()
            ]
            return web.json_response({"keys": listed})
        if path == ASK:
            form = parse_qs((await request.read()).decode())
            self.forms.append(form)
            self.authorizations.append(request.headers.get("Authorization"))
            return web.json_response(self.active.get(form["token"][0], {"active": False}))
        return web.Response(status=404)


@asynccontextmanager
async def issuer() -> AsyncIterator[Issuer]:
    """Run an issuer."""
    made = Issuer()
    server = web.Server(made.handle)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    made.port = listening.sockets[0].getsockname()[1]
    made.url = f"http://127.0.0.1:{made.port}"
    try:
        yield made
    finally:
        made.let_go.set()
        listening.close()
        await server.shutdown(1.0)
