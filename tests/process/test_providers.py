"""Callers that a provider vouches for, on a spawned sidecar: let in, shut out by a reload, and never logged."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tests.support.issuer import AUDIENCE, Issuer, issuer
from tests.support.spawned import Spawned, running, write_capsule
from tests.support.spawned import sidecar as command
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CARD = "/.well-known/agent-card.json"
AUTH = """\
auth:
  providers:
    - {{kind: oidc, issuer: "{url}", audience: {audience}, allow_private: true}}
    - {{kind: introspection, url: "{url}/introspect", client_id: me, client_secret: {{env: ASKING}}, allow_private: true}}
"""


@contextmanager
def an_issuer() -> Iterator[Issuer]:
    """Run an issuer in a thread of its own."""
    made: list[Issuer] = []
    ready, over = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        async with issuer() as running_:
            made.append(running_)
            loops.append(asyncio.get_running_loop())
            ready.set()
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="issuer")
    thread.start()
    assert ready.wait(10)
    try:
        yield made[0]
    finally:
        loops[0].call_soon_threadsafe(over.set)
        thread.join()


@contextmanager
def asked(
    sidecar: Spawned, method: str, params: dict[str, Any], token: str | None = None
) -> Iterator[http.client.HTTPResponse]:
    """Call the A2A door and hand out the answer, whose body is still to be read."""
    with closing(http.client.HTTPConnection("127.0.0.1", sidecar.port("a"), timeout=20)) as connection:
        fields = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        if token is not None:
            fields["Authorization"] = f"Bearer {token}"
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        connection.request("POST", "/a2a/v1", body, fields)
        with connection.getresponse() as answer:
            yield answer


def tasks(sidecar: Spawned, token: str | None = None) -> tuple[int, int]:
    """Return the status of a list, and how many tasks there are."""
    with asked(sidecar, "ListTasks", {}, token) as answer:
        document = json.loads(answer.read())
        return answer.status, document.get("result", {}).get("totalSize", -1)


def test_providers_vouch_until_the_configuration_names_them_no_more(tmp_path: Path) -> None:
    """Signed tokens and opaque ones; each subject sees its own tasks; a stream ends with the reload."""
    write_capsule(tmp_path / "capsules/a")
    config = tmp_path / "config.yaml"
    roots = f"roots: [{{path: {tmp_path / 'capsules'}}}]\n"
    with an_issuer() as there:
        config.write_text(roots + AUTH.format(url=there.url, audience=AUDIENCE))
        there.active["opaque"] = {"active": True, "sub": "bob"}
        env = {"ASKING": "s3cret-of-the-client"}
        with running(["--config", str(config)], state=tmp_path / "state", env=env) as sidecar:
            signed = there.token(sub="ada")
            assert tasks(sidecar) == (401, -1)
            assert tasks(sidecar, "wrong") == (401, -1)
            assert tasks(sidecar, there.token(aud="another")) == (401, -1)
            assert tasks(sidecar, there.signed_with_public_key()) == (401, -1)
            assert tasks(sidecar, signed) == tasks(sidecar, "opaque") == (200, 0)
            message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
            with asked(sidecar, "SendStreamingMessage", {"message": message}, signed) as stream:
                until_sync(lambda: tasks(sidecar, signed) == (200, 1), what="the task")
                assert tasks(sidecar, "opaque") == (200, 0)
                card = sidecar.card("a")
                assert there.url in card["securitySchemes"]["oidc"]["openIdConnectUrl"]
                sidecar.event("token_refused", at=there.url, reason="it is for another audience")
                sidecar.event("token_refused", at=there.url, reason="it is not active")

                config.write_text(roots + "capsules: {a: {door: authenticated}}\n")
                assert command("reload", "--state", str(sidecar.state)).returncode == 0
                with suppress(http.client.HTTPException, ConnectionError):  # it is cut
                    while stream.read(4096):
                        pass
            assert tasks(sidecar, signed) == tasks(sidecar) == (401, -1)
            until_sync(lambda: list(sidecar.card("a")["securitySchemes"]) == ["bearer"], what="the card")
        log = "\n".join(sidecar.raw)
        assert "s3cret-of-the-client" not in log
        assert signed[-40:] not in log
        assert all(who.startswith("Basic ") for who in there.authorizations if who)
