"""What an A2A door is asked: in which version, by whom, for what, and in which media types (A2A 1.0 section 3.6)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.dialects import a2a, jsonrpc
from sidecar.dialects.a2a03_server import A2A_03
from sidecar.dialects.a2a10_server import A2A_10
from sidecar.dialects.jsonrpc import RpcError
from sidecar.dialects.moi import MOI

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecar.dialects.a2a import Call
    from sidecar.dialects.a2a_server import Dialect, Part
    from sidecar.dialects.jsonrpc import Id

DIALECTS: Final = (A2A_10, A2A_03)
_V03: Final = re.compile(r"0\.3(\.\d+)?", re.ASCII)
_V10: Final = re.compile(r"1\.0(\.\d+)?", re.ASCII)
_SPOKEN: Final[Mapping[str | None, Dialect]] = {None: A2A_03, "0.3": A2A_03, "1.0": A2A_10}
"""What clients send, and what it means; what else it may be is looked at more closely."""
METHODS: Final = {name: (each, call) for each in DIALECTS for name, call in each.methods.items()}
"""By the name of a method, the dialect that has it, and what it asks for."""
_KINDS: Final = {"text": "text/plain", "data": "application/json"}


class Asked(NamedTuple):
    """How a request came: whose it is, the value of `A2A-Version` (None: none), and the version that its path speaks.

    `only` is None where the path speaks both. `streams` says whether the client takes a stream of events.
    """

    owner: str
    version: str | None = None
    only: str | None = None
    streams: bool = False

    @property
    def speaks(self) -> Dialect | None:
        """The version that the request is in by its own account; None for one that is not known."""
        known = _SPOKEN.get(self.version)
        if known is not None:
            return known
        version = (self.version or "").strip()
        if not version or _V03.fullmatch(version):
            return A2A_03
        return A2A_10 if _V10.fullmatch(version) else None

    @property
    def answers(self) -> Dialect:
        """The version to answer in before the method is known."""
        by_path = next((dialect for dialect in DIALECTS if dialect.version == self.only), None)
        return by_path or self.speaks or A2A_03


class Request(NamedTuple):
    """A call whose method and version are right."""

    dialect: Dialect
    id: Id
    call: Call
    params: Mapping[str, Any]
    owner: str

    @property
    def label(self) -> str:
        """What it is counted as."""
        return LABELS[self.dialect.name, self.call]

    def result(self, result: object) -> bytes:
        """Return the answer."""
        return jsonrpc.result(self.id, result)


LABELS: Final = {
    (each.name, call): f"{each.name}/{call.replace(' ', '-')}"
    for each in (*DIALECTS, MOI)
    for call in each.methods.values()
}
"""What a call of a dialect is counted as."""


def check_version(dialect: Dialect, method: str, asked: Asked) -> None:
    """See that a method, its path and its header are of one version. Raises RpcError -32009."""
    speaks = asked.speaks
    if speaks is None:
        said = f"{asked.version!r} is not supported: the header A2A-Version may be 0.3 or 1.0"
    elif speaks.version != dialect.version:
        said = (
            f"{method} is of A2A {dialect.version}, and the request of {speaks.version}:"
            f" send the header A2A-Version: {dialect.version}"
        )
    elif asked.only not in (None, dialect.version):
        said = f"{method} is of A2A {dialect.version} (header A2A-Version), and this path speaks {asked.only}"
    else:
        return
    raise RpcError(a2a.VERSION_NOT_SUPPORTED, said)


def takes(modes: Sequence[str], part: Part) -> bool:
    """Whether a part is of one of these media types, which may end in `*`.

    Text always is that does not say what it is, and nothing but text where all of them are text.
    """
    if len(part) == 1 and "text" in part:
        return True
    if all(mode.startswith("text/") for mode in modes) and "text" not in part:
        return False
    kind = next((kind for member, kind in _KINDS.items() if member in part), None)
    given = part.get("mediaType") or kind
    if given is None or ("text" in part and given == kind):
        return True
    given = given.partition(";")[0].strip().lower()
    return any(
        mode in (given, "*/*", "*") or (mode.endswith("/*") and given.startswith(mode[:-1])) for mode in modes
    )
