"""Who a request on a capsule comes from, and whether that is enough: a header in, a caller or a refusal out."""

from __future__ import annotations

import hmac
import time
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from sidecar.auth import fixed, keys, runtime_token
from sidecar.auth.caller import (
    ADMIN,
    ADMIN_KIND,
    AGENT_KEY,
    ANONYMOUS,
    ANONYMOUS_KIND,
    BAD_END_USER,
    END_USER,
    MOI_KEY,
    NO_END_USERS,
    NOT_OPERATOR,
    RUNTIME_TOKEN,
    STRANGER,
    UNAUTHORIZED,
    Caller,
    KeyGrip,
    bearer_of,
    is_end_user,
    owner_of_end_user,
    speaking_for,
)
from sidecar.auth.expiries import Expiries
from sidecar.auth.fixed import MoiKey, MoiKeys
from sidecar.auth.holds import Holds
from sidecar.auth.rate import Rates
from sidecar.auth.runtime_token import RuntimeTokens, virtual_user
from sidecar.errors import RefusedError, refusal
from sidecar.model import INTROSPECTED, OIDC, PERSONAL, AuthKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from multidict import CIMultiDictProxy

    from sidecar.auth.keys import KeyRing
    from sidecar.auth.providers import Providers
    from sidecar.model import AuthSettings, Capsule


@dataclass(frozen=True, slots=True)
class RuntimeAuth:
    """What a key gets for one of its end users: a token that lasts so many seconds, and an id that stays the same."""

    access_token: str = field(repr=False)
    expires_in: int
    virtual_user_id: str


class Access:
    """Decides for every capsule. One event loop.

    `admin_token` opens the murmur door and the files plane. `clock` is in Unix seconds, `monotonic` in seconds that
    never go back. `streams` ends what is open with the credential that opened it; `on_change` is called with the
    directory of a capsule whose kinds of credentials may be others now. `moi_keys` are the keys of the MOI view.
    """

    def __init__(
        self,
        ring: KeyRing,
        providers: Providers,
        *,
        admin_token: str,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ring = ring
        self._providers = providers
        self._admin = sha256(admin_token.encode()).digest()
        self._clock = clock
        self._tokens = RuntimeTokens()
        self._rates = Rates(monotonic)
        self.streams = Holds(self, clock=clock)
        self.expiries = Expiries(self, ring, clock)
        self.on_change: Callable[[str], object] = lambda _: None
        self.moi_keys = MoiKeys()
        ring.on_change = self._changed

    def reconfigure(self, moi_keys: MoiKeys) -> None:
        """Take over the keys of the MOI view, which belong to no capsule; streams that rest on others end."""
        self.moi_keys = moi_keys
        self.streams.recheck_all()

    async def aclose(self) -> None:
        """End every question that is under way."""
        self.expiries.close()
        await self.streams.aclose()
        await self._providers.aclose()

    def _changed(self, directory: str) -> None:
        self.streams.recheck(directory)
        self.on_change(directory)

    def wants(self, capsule: Capsule) -> bool:
        """Whether a capsule has credentials: then a stranger gets no further than its public cards.

        One that had an agent key has, also when that is over: only a key that is forgotten leaves it open.
        """
        auth = capsule.settings.auth
        return bool(
            auth.providers
            or auth.personal_tokens is not None
            or auth.door == "authenticated"
            or self._ring.any_in(capsule.directory)
        )

    def guards_door(self, capsule: Capsule) -> bool:
        """Whether the murmur door and the files plane are closed to strangers."""
        return capsule.settings.auth.door != "open" and self.wants(capsule)

    def kinds(self, capsule: Capsule) -> tuple[AuthKind, ...]:
        """Return the kinds of credentials that a capsule takes, in the order of Everruns cards; none: it is open."""
        if not self.wants(capsule):
            return ()
        auth, now = capsule.settings.auth, self._clock()
        found = list(auth.kinds)
        own = self._ring.of(capsule.directory, capsule.manifest.name)
        if any(key.end_users and key.is_valid(now) for key in own):
            found.insert(0, AuthKind(RUNTIME_TOKEN))
        if own or not found:
            found.insert(0, AuthKind(AGENT_KEY))
        return tuple(found)

    async def caller(self, capsule: Capsule, headers: CIMultiDictProxy[str]) -> Caller:
        """Return who asks, for every door but the murmur one. Raises RefusedError 401 or 403.

        A capsule without credentials takes no notice of what is sent. All 401 are alike, so that nobody learns what
        is wrong with a guess.
        """
        if not self.wants(capsule):
            return ANONYMOUS
        token = bearer_of(headers)
        if token is None:
            raise RefusedError(UNAUTHORIZED)
        return await self.bearer(capsule, token, headers.getall(END_USER, ()))

    async def operator(self, capsule: Capsule, headers: CIMultiDictProxy[str]) -> Caller:
        """Return who asks, for the murmur door and the files plane. Raises RefusedError 401 or 403."""
        if not self.guards_door(capsule):
            return ANONYMOUS
        token = bearer_of(headers)
        if token is None:
            raise RefusedError(UNAUTHORIZED)
        if hmac.compare_digest(sha256(token.encode()).digest(), self._admin):
            return ADMIN
        caller = await self.bearer(capsule, token, headers.getall(END_USER, ()))
        if not caller.operator:
            raise RefusedError(NOT_OPERATOR)
        return caller

    async def bearer(self, capsule: Capsule, token: str, end_users: Sequence[str] = ()) -> Caller:
        """Return whose token it is, on a capsule that has credentials; `end_users` are the values of `End-User`.

        Raises RefusedError 401 or 403.
        """
        caller = await self._known(capsule, token)
        if caller is None:
            raise RefusedError(UNAUTHORIZED)
        if not end_users:
            return caller
        if not caller.end_users:
            raise RefusedError(NO_END_USERS)
        if len(end_users) != 1 or not is_end_user(end_users[0]):
            raise RefusedError(BAD_END_USER)
        return speaking_for(caller, end_users[0])

    def moi_caller(self, text: str) -> tuple[Caller, str] | None:
        """Return whose key of the MOI view a text is, and the workspace of the key; None where it is none."""
        key = self.moi_keys.find(text)
        return None if key is None else (Caller(key.owner, MOI_KEY, grip=key), key.workspace)

    async def is_known(self, token: str, auth: AuthSettings) -> bool:
        """Whether a token is good for any capsule; of members and providers those of `auth` count."""
        if token.startswith(keys.PREFIX):
            return self._ring.holder(token) is not None
        if token.startswith(runtime_token.PREFIX):
            now = self._clock()
            claims = self._tokens.read(token, None, now)
            key = None if claims is None else self._ring.get(claims.key_id)
            return key is not None and key.is_valid(now)
        return await self._with_others(auth, token) is not None

    def admit(self, capsule: Capsule, caller: Caller, peer: str | None) -> None:
        """Count a request of a caller; raise RefusedError 429 where it is one too many.

        Callers without credentials are told apart by their address.
        """
        rate = capsule.settings.auth.rate
        if rate is None:
            return
        who = peer if caller.kind == ANONYMOUS_KIND else caller.owner
        wait = self._rates.take((capsule.session_id, caller.kind == ANONYMOUS_KIND, who), rate)
        if wait is not None:
            raise RefusedError(
                refusal("rate_limited", "Too many requests; try again later.", ("retry-after", str(wait)))
            )

    def confirm(self, capsule: Capsule, caller: Caller, *, door: bool = False) -> None:
        """Look again at a caller who was let in a while ago, before the rest of a request came.

        `capsule` is that one as it is served now. Raises RefusedError 401 where the credential has ended meanwhile.
        """
        if not self.still_good(capsule, caller, door=door):
            raise RefusedError(UNAUTHORIZED)

    def issue(self, capsule: Capsule, caller: Caller) -> RuntimeAuth:
        """Exchange an agent key that speaks for an end user for a runtime token of that one.

        Raises RefusedError: 401 for what is no agent key, since nothing else is exchanged; 403 for a key that may
        not, or that names no end user.
        """
        if caller.kind != AGENT_KEY or not isinstance(caller.grip, KeyGrip):
            raise RefusedError(UNAUTHORIZED)
        if not caller.end_users:
            raise RefusedError(NO_END_USERS)
        if caller.end_user is None:
            raise RefusedError(BAD_END_USER)
        key_id = caller.grip.key_id
        return RuntimeAuth(
            self._tokens.issue(capsule.session_id, key_id, caller.end_user, self._clock()),
            runtime_token.LASTS,
            virtual_user(key_id, caller.end_user),
        )

    def ends_at(self, caller: Caller) -> float | None:
        """Return when a caller's credential ends, as far as is known now: Unix seconds, None for never."""
        grip = caller.grip
        times = [caller.expires_at]
        if isinstance(grip, KeyGrip) and (key := self._ring.get(grip.key_id)) is not None:
            times.append(key.ends_at(grip.sha256))
        return min((at for at in times if at is not None), default=None)

    def still_good(self, capsule: Capsule, caller: Caller, *, door: bool) -> bool:
        """Whether what a caller was let in with is still good; `door`: for the murmur door or the files plane."""
        if caller.kind == ADMIN_KIND:
            return True
        if caller.kind == ANONYMOUS_KIND:
            if caller == STRANGER and self.moi_keys:
                return False
            return not (self.guards_door(capsule) if door else self.wants(capsule))
        now, grip, auth = self._clock(), caller.grip, capsule.settings.auth
        if caller.expires_at is not None and now >= caller.expires_at:
            return False
        if isinstance(grip, MoiKey):
            return grip in self.moi_keys and grip.sees(capsule.settings.moi_workspace)
        if not isinstance(grip, KeyGrip):
            return grip in (auth.personal_tokens or ()) or grip in auth.providers
        key = self._ring.get(grip.key_id)
        if key is None or not key.is_valid(now) or not _is_of(key, capsule):
            return False
        return grip.sha256 is None or any(
            one.sha256 == grip.sha256 and one.is_valid(now) for one in key.secrets
        )

    async def _known(self, capsule: Capsule, token: str) -> Caller | None:
        """Return whose a token is, by its shape: ours are shown to nobody else."""
        if token.startswith(keys.PREFIX):
            return self._with_key(capsule, token)
        if token.startswith(runtime_token.PREFIX):
            return self._with_runtime_token(capsule, token)
        return await self._with_others(capsule.settings.auth, token)

    async def _with_others(self, auth: AuthSettings, token: str) -> Caller | None:
        """Return whose a token is that the configuration makes good."""
        if token.startswith(fixed.PREFIX):
            member = fixed.member_with(auth.personal_tokens or (), token)
            return None if member is None else Caller(f"member:{member.member}", PERSONAL, grip=member)
        if not auth.providers or hmac.compare_digest(sha256(token.encode()).digest(), self._admin):
            return None
        found = await self._providers.check(auth.providers, token)
        if found is None:
            return None
        provider, vouched = found
        kind = OIDC if provider.kind == "oidc" else INTROSPECTED
        return Caller(
            # a URL has no space, so that no subject can look like one of another provider
            f"{kind} {provider.url} {vouched.subject}",
            kind,
            expires_at=vouched.expires_at,
            grip=provider,
            again=None if kind == OIDC else partial(self._providers.ask, provider, token),
        )

    def _with_key(self, capsule: Capsule, token: str) -> Caller | None:
        found = self._ring.find(capsule.directory, capsule.manifest.name, token)
        if found is None:
            return None
        key, secret = found
        return Caller(
            f"key:{key.id}",
            AGENT_KEY,
            operator=key.operator,
            end_users=key.end_users,
            grip=KeyGrip(key.id, secret.sha256),
        )

    def _with_runtime_token(self, capsule: Capsule, token: str) -> Caller | None:
        now = self._clock()
        claims = self._tokens.read(token, capsule.session_id, now)
        key = None if claims is None else self._ring.get(claims.key_id)
        if claims is None or key is None or not key.is_valid(now) or not _is_of(key, capsule):
            return None
        return Caller(
            owner_of_end_user(f"key:{key.id}", claims.end_user),
            RUNTIME_TOKEN,
            end_user=claims.end_user,
            expires_at=claims.expires_at,
            grip=KeyGrip(key.id, None),
        )


def _is_of(key: keys.AgentKey, capsule: Capsule) -> bool:
    return (key.directory, key.name) == (capsule.directory, capsule.manifest.name)
