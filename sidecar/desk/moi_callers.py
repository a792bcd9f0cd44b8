"""Who asks something of the MOI view, and which agents that one sees (MOI view, Credentials)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from aiohttp import hdrs
from multidict import istr

from sidecar.auth.caller import (
    CHALLENGE,
    END_USER,
    NO_END_USERS,
    STRANGER,
    UNAUTHORIZED,
    Caller,
    bearer_of,
)
from sidecar.auth.fixed import SYSTEM
from sidecar.dialects.moi import MULTIPLE
from sidecar.errors import RefusedError, refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from multidict import CIMultiDictProxy

    from sidecar.auth.access import Access
    from sidecar.dialects.moi import Selection
    from sidecar.doors.moi import MoiDoor
    from sidecar.errors import Refusal
    from sidecar.model import AuthSettings, Capsule

# as the headers keep them, so that each look at them is a short one
MOI_KEY: Final = istr("moi-key")
API_KEY: Final = istr("X-API-Key")
WORKSPACE: Final = istr("X-Workspace-ID")
_END_USER: Final = istr(END_USER)

_UNAUTHORIZED: Final = refusal(
    "unauthorized",
    "This needs one credential that is good here: moi-key: KEY, X-API-Key: KEY, or Authorization: Bearer TOKEN.",
    ("www-authenticate", CHALLENGE),
)
_NOT_YOURS: Final = refusal(
    "forbidden",
    f"The key belongs to another workspace than {WORKSPACE} says.",
    ("www-authenticate", f'{CHALLENGE}, error="insufficient_scope"'),
)
_ELSEWHERE: Final = refusal("bad_request", f"agent_workspace_id may be the caller's workspace or {SYSTEM}.")
_TWO: Final = refusal("bad_request", "agent_id and agent_code are not those of one agent.")
_UNKNOWN: Final = refusal("not_found", "There is no such agent.")
_NOT_SERVED: Final = refusal("unavailable", "The agent is not available now.")


class Served(Protocol):
    """What the view needs of a capsule that is served."""

    @property
    def capsule(self) -> Capsule:
        """The capsule."""

    def moi(self) -> MoiDoor:
        """Make its door, for one request."""


@dataclass(frozen=True, slots=True)
class Agent:
    """A capsule that there is: its workspace, and what is served of it; None where nothing is now."""

    id: str
    workspace: str
    served: Served | None


class Directory(Protocol):
    """Where selectors lead."""

    @property
    def auth(self) -> AuthSettings:
        """The providers of all capsules, and the tokens of members that some of them take."""

    @property
    def workspaces(self) -> Collection[str]:
        """Every workspace that an agent is in."""

    def agent(self, agent_id: str) -> Agent | None:
        """Return the agent with this id."""

    def now(self, agent_id: str) -> Capsule | None:
        """Return the capsule that is served under an id."""

    def coded(self, code: str, workspace: str) -> Agent | None:
        """Return the agent of a workspace that has this code."""

    def served(self) -> Sequence[Capsule]:
        """Return the capsules that are served now, sorted by id."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks, before it is known of what.

    `caller` and `workspace` are those of a key of the view. With a `token` it is left to the capsule that is meant
    whose that is; `known` says that it is good for some capsule. Without any of these it is anybody.
    """

    caller: Caller | None = None
    workspace: str | None = None
    token: str | None = None
    known: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    """A caller who may use an agent."""

    served: Served
    caller: Caller


def sees(access: Access, headers: CIMultiDictProxy[str], capsule: Capsule) -> bool | None:
    """Whether who asks visibly has a key of the view that sees a capsule; None: no key is needed, and none is shown.

    False says nothing but that more has to be looked at.
    """
    if API_KEY in headers or hdrs.AUTHORIZATION in headers or WORKSPACE in headers:
        return False
    if not access.moi_keys:
        return False if MOI_KEY in headers else None
    given = headers.getall(MOI_KEY, ())
    key = access.moi_keys.find(given[0]) if len(given) == 1 and _END_USER not in headers else None
    return key is not None and key.sees(capsule.settings.moi_workspace)


async def visitor_of(access: Access, directory: Directory, headers: CIMultiDictProxy[str]) -> Visitor:
    """Return who asks. Raises RefusedError: 400 for more than one credential, 401 for none or an unknown one, 403."""
    given = [
        (name, value) for name in (MOI_KEY, API_KEY, hdrs.AUTHORIZATION) for value in headers.getall(name, ())
    ]
    if len(given) > 1:
        raise RefusedError(MULTIPLE)
    closed = bool(access.moi_keys)
    if not given:
        if closed:
            raise RefusedError(_UNAUTHORIZED)
        return _ANYBODY
    (name, value), token = given[0], None
    if name == hdrs.AUTHORIZATION:
        token = bearer_of(headers)
        if token is None:
            raise RefusedError(_UNAUTHORIZED)
        value = token
    if not closed and token is None:
        return _ANYBODY
    found = access.moi_caller(value) if closed else None
    if found is not None:
        return _with_key(*found, headers)
    known = token is not None and await access.is_known(token, directory.auth)
    if closed and not known:
        raise RefusedError(_UNAUTHORIZED)
    return Visitor(token=token, known=known)


def _with_key(caller: Caller, workspace: str, headers: CIMultiDictProxy[str]) -> Visitor:
    if headers.get(WORKSPACE) not in (None, workspace):
        raise RefusedError(_NOT_YOURS)
    if _END_USER in headers:  # whose tasks would be everybody's who has the key
        raise RefusedError(NO_END_USERS)
    return Visitor(caller, workspace)


async def admitted(
    access: Access,
    directory: Directory,
    headers: CIMultiDictProxy[str],
    visitor: Visitor,
    selection: Selection,
) -> Admitted:
    """Return the agent that is meant, and who asks. Raises RefusedError: 400, 401, 403, 404, 503.

    An agent that is not to be seen and one that there is not are told alike: by 404, and by 400 where both selectors
    are given, which then are those of no agent.
    """
    workspace = selection.workspace
    unknown = _UNKNOWN if selection.agent_id is None or selection.agent_code is None else _TWO
    if workspace is not None and visitor.token is None and workspace not in _of(visitor, directory):
        raise RefusedError(_ELSEWHERE)
    agent = _selected(directory, selection)
    if agent is None or (
        visitor.workspace is not None and agent.workspace not in (visitor.workspace, SYSTEM)
    ):
        raise RefusedError(unknown)
    served = agent.served
    caller = visitor.caller
    if caller is None:
        if served is None and visitor.known:
            raise RefusedError(unknown)
        caller = STRANGER
        if served is not None:
            caller = await _caller(access, headers, visitor, served.capsule, unknown)
        if workspace not in (None, SYSTEM, agent.workspace):
            raise RefusedError(_ELSEWHERE)
    if workspace not in (None, agent.workspace):
        raise RefusedError(_UNKNOWN)
    if served is None:
        raise RefusedError(_NOT_SERVED)
    return Admitted(served, caller)


def _of(visitor: Visitor, directory: Directory) -> Collection[str]:
    """Return the workspaces that a visitor may name."""
    if visitor.workspace is None:
        return (SYSTEM, *directory.workspaces)
    return (SYSTEM, visitor.workspace)


def _selected(directory: Directory, selection: Selection) -> Agent | None:
    """Return the agent that both selectors lead to. Raises RefusedError where they lead to two.

    Without a workspace, a code is one of `system`; beside an id it may also be one of that agent's workspace.
    """
    by_id = by_code = None
    if selection.agent_id is not None:
        by_id = directory.agent(selection.agent_id)
    if selection.agent_code is not None:
        by_code = directory.coded(selection.agent_code, selection.workspace or SYSTEM)
        if by_code is None and by_id is not None and selection.workspace is None:
            by_code = directory.coded(selection.agent_code, by_id.workspace)
        if selection.agent_id is None:
            return by_code
        if by_id is None or by_code is None or by_id.id != by_code.id:
            raise RefusedError(_TWO)
    return by_id


async def _caller(
    access: Access, headers: CIMultiDictProxy[str], visitor: Visitor, capsule: Capsule, unknown: Refusal
) -> Caller:
    """Return whose token it is on a capsule, or that it is anybody's where the capsule has no credentials."""
    if not access.wants(capsule):
        if visitor.known:  # good for another one, which is all that it sees
            raise RefusedError(unknown)
        return STRANGER
    if visitor.token is None:
        raise RefusedError(_UNAUTHORIZED)
    try:
        return await access.bearer(capsule, visitor.token, headers.getall(END_USER, ()))
    except RefusedError as error:
        if error.refusal is UNAUTHORIZED:
            raise RefusedError(unknown if visitor.known else _UNAUTHORIZED) from None
        raise


_ANYBODY: Final = Visitor()
