"""A2A calls to a capsule on a port of its own, with every byte of the answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.support.port import BOUND, Stream, message
from tests.support.rawhttp import Answer, exchange, request_bytes

if TYPE_CHECKING:
    from tests.support.port import Port

V03: Final = "0.3"
V10: Final = "1.0"
PATHS: Final = {V03: "/a2a/v0.3", V10: "/a2a/v1"}
METHODS: Final = {
    V03: ("message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe"),
    V10: ("SendMessage", "SendStreamingMessage", "GetTask", "CancelTask", "SubscribeToTask"),
}
ROLES: Final = {V03: "user", V10: "ROLE_USER"}


class Caller:
    """A client of one version at one port: methods are `send`, `stream`, `get`, `cancel`, `subscribe`."""

    def __init__(self, port: Port, version: str) -> None:
        self.port = port
        self.version = version
        names = ("send", "stream", "get", "cancel", "subscribe")
        self._methods = dict(zip(names, METHODS[version], strict=True)) | {"list": "ListTasks"}

    def params(self, text: str = "hello", *, blocking: bool = True, **more: Any) -> dict[str, Any]:
        """Return the parameters of a send; what is more belongs to the message."""
        made = message(text, **more)
        made["message"]["role"] = ROLES[self.version]
        if self.version == V03:
            made["message"] |= {"kind": "message", "parts": [{"kind": "text", "text": text}]}
        way = {"blocking": blocking} if self.version == V03 else {"returnImmediately": not blocking}
        return {**made, "configuration": way}

    def request(self, call: str, params: Any, *, request_id: Any = 1, **headers: str) -> bytes:
        """Return the bytes of a request."""
        body = {"jsonrpc": "2.0", "id": request_id, "method": self._methods.get(call, call), "params": params}
        return self.posted(json.dumps(body).encode(), **headers)

    def posted(self, body: bytes, path: str | None = None, **headers: str) -> bytes:
        """Return the bytes of a request with any body; names of headers are written with underscores."""
        fields = {"Content-Type": "application/json", "A2A-Version": self.version}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        return request_bytes("POST", path or PATHS[self.version], headers=fields, body=body)

    async def raw(self, body: bytes, path: str | None = None, **headers: str) -> dict[str, Any]:
        """Post a body, and return the JSON of the answer, which is a 200."""
        return document(await exchange(self.port.number, self.posted(body, path, **headers), within=BOUND))

    async def call(self, call: str, params: Any, *, request_id: Any = 1, **headers: str) -> dict[str, Any]:
        """Call a method and return the answer."""
        request = self.request(call, params, request_id=request_id, **headers)
        return document(await exchange(self.port.number, request, within=BOUND))

    async def result(self, call: str, params: Any, **headers: str) -> dict[str, Any]:
        """Call a method that has a result, and return that."""
        answer = await self.call(call, params, **headers)
        assert list(answer) == ["jsonrpc", "id", "result"], answer
        result: dict[str, Any] = answer["result"]
        return result

    async def code(self, call: str, params: Any, **headers: str) -> int:
        """Call a method that has an error, and return its code."""
        answer = await self.call(call, params, **headers)
        assert list(answer) == ["jsonrpc", "id", "error"], answer
        code: int = answer["error"]["code"]
        return code

    async def send(self, text: str = "hello", **more: Any) -> dict[str, Any]:
        """Send without waiting, and return the task."""
        return self.task(await self.result("send", self.params(text, blocking=False, **more)))

    async def get(self, task_id: str, **more: Any) -> dict[str, Any]:
        """Return a task."""
        return await self.result("get", {"id": task_id, **more})

    async def state(self, task_id: str) -> str:
        """Return the state of a task, as murmur spells it."""
        return state_of(await self.get(task_id))

    def task(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the task that a send came to."""
        return result if self.version == V03 else result["task"]

    async def stream(self, params: Any = None, **headers: str) -> Stream:
        """Open a stream of a new message."""
        return await self.open("stream", self.params() if params is None else params, **headers)

    async def subscribe(self, task_id: str, *, request_id: Any = 1) -> Stream:
        """Open a stream of a task that there is."""
        return await self.open("subscribe", {"id": task_id}, request_id=request_id)

    async def open(self, call: str, params: Any, *, request_id: Any = 1, **headers: str) -> Stream:
        """Open a stream of any call; it is closed with the port."""
        request = self.request(call, params, request_id=request_id, **headers)
        stream = await Stream.open(self.port.number, request)
        self.port.streams.append(stream)
        return stream


def document(answer: Answer) -> dict[str, Any]:
    """Return the JSON of an answer that is a 200."""
    assert answer.status == 200, answer
    assert answer.headers["content-type"] == "application/json"
    found: dict[str, Any] = json.loads(answer.body)
    return found


def state_of(task: dict[str, Any]) -> str:
    """Return the state of a task of either version, as murmur spells it."""
    state: str = task["status"]["state"]
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


def results_in(data: bytes) -> list[dict[str, Any]]:
    """Return the results that frames carry; comments are left out."""
    found = []
    for text in data.decode().removesuffix("\n\n").split("\n\n"):
        if text and not text.startswith(":"):
            answer = json.loads(text.removeprefix("data: "))
            assert list(answer) == ["jsonrpc", "id", "result"], answer
            found.append(answer["result"])
    return found


def told(results: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what a stream showed, the same for both versions."""
    return [_told(result) for result in results]


def _told(result: dict[str, Any]) -> tuple[Any, ...]:
    if "kind" not in result:
        ((kind, shown),) = result.items()
    else:
        kind, shown = result["kind"], result
    match kind:
        case "task":
            return ("task", state_of(shown))
        case "message":
            return ("message", *(part["text"] for part in shown["parts"]))
        case "status-update" | "statusUpdate":
            said = shown["status"].get("message", {"parts": [{"text": None}]})
            return ("status", state_of(shown), said["parts"][0]["text"])
    artifact = shown["artifact"]
    text = "".join(part.get("text", "?") for part in artifact["parts"])
    return ("artifact", artifact.get("name"), text, shown["append"], shown["lastChunk"])
