"""TLS on an accepted connection: what stands between the socket and whatever speaks HTTP.

asyncio has this too, but there a client that has said its last cannot wait for its answer, nobody hears of a handshake
that goes on or fails, what was not sent yet is not all counted, and every connection holds a quarter of a megabyte.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from sidecar.errors import refusal
from sidecar.web.answers import refusal_answer, wire
from sidecar.web.refusals import closing_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

HANDSHAKE: Final = 10.0
"""Seconds that a handshake may take."""
PIECE: Final = 16 * 1024
"""Bytes of a record at most (RFC 8446 section 5.1)."""
RECORD: Final = 0x16
"""How a handshake begins (RFC 8446 section 5.1)."""


class Handshakes(Protocol):
    """Who is told of the handshakes of a listener."""

    def handshake_began(self, secured: Secured) -> bool:
        """Take note of one, and tell whether there is room for it."""

    def handshake_over(self, secured: Secured, fault: str | None = None) -> None:
        """Take note that it is over; `fault` says what the client did wrong, if that is worth telling."""


class Secured(asyncio.Transport, asyncio.Protocol):
    """The protocol on a socket's transport, and the transport of the protocol that `make` makes after the handshake.

    Encrypts at once whatever is written, so that the socket's transport alone holds what is unsent. A client that
    ends its side alone, by its last record or by that of the connection, may still be answered.
    """

    __slots__ = (
        "_app",
        "_begun",
        "_closing",
        "_context",
        "_ended",
        "_handshakes",
        "_incoming",
        "_make",
        "_outgoing",
        "_raw",
        "_reading",
        "_said_bye",
        "_timer",
        "_tls",
        "_within",
    )

    def __init__(
        self,
        context: ssl.SSLContext,
        make: Callable[[], asyncio.Protocol],
        handshakes: Handshakes,
        *,
        within: float = HANDSHAKE,
    ) -> None:
        """`within` are the seconds that the handshake may take."""
        super().__init__()
        self._context = context
        self._make = make
        self._handshakes = handshakes
        self._within = within
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._raw: asyncio.Transport | None = None
        self._app: asyncio.Protocol | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._begun = False
        self._reading = True
        self._ended = False
        self._said_bye = False
        self._closing = False

    @property
    def peername(self) -> object:
        """Who is at the other end, as the socket says it."""
        return None if self._raw is None else self._raw.get_extra_info("peername")

    # The protocol on the socket's transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the handshake, for which the client has its time."""
        self._raw = cast("asyncio.Transport", transport)
        if not self._handshakes.handshake_began(self):
            self.abort()
            return
        self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._timer = asyncio.get_running_loop().call_later(self._within, self._fail, "it took too long")

    def connection_lost(self, exc: BaseException | None) -> None:
        """Hand on that the connection ended."""
        self._closing = True
        app, self._app = self._app, None
        if app is None:
            self._leave_handshake()
        else:
            app.connection_lost(cast("Exception | None", exc))
        self._raw = self._tls = None

    def data_received(self, data: bytes) -> None:
        """Decrypt what arrived, and hand it on."""
        if self._closing or self._ended:
            return
        if not self._begun and data[0] != RECORD:
            self._refuse_plain()
            return
        self._begun = True
        self._incoming.write(data)
        if self._app is not None or self._shake_hands():
            self._deliver()

    def eof_received(self) -> bool:
        """Hand on that nothing more comes, and tell whether the client is still to be answered."""
        if not self._closing and not self._ended:
            self._end()
        return not self._closing

    def pause_writing(self) -> None:
        """Hand on that the client has enough for now."""
        if self._app is not None:
            self._app.pause_writing()

    def resume_writing(self) -> None:
        """Hand on that there is room again."""
        if self._app is not None:
            self._app.resume_writing()

    # The transport of the other protocol

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        """Encrypt and send; what follows the end goes nowhere."""
        if self._tls is None or self._closing or self._said_bye:
            return
        left = memoryview(data)
        try:
            while left:
                left = left[self._tls.write(left) :]
        except ssl.SSLError:
            self.abort()
        self._flush()

    def write_eof(self) -> None:
        """Say that nothing more comes."""
        self._say_bye()
        if self._raw is not None and not self._closing:
            self._raw.write_eof()

    def can_write_eof(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """End the connection once what was written is sent."""
        if not self._closing and self._raw is not None:
            self._say_bye()
            self._closing = True
            self._raw.close()

    def abort(self) -> None:
        """End the connection now."""
        self._closing = True
        if self._raw is not None:
            self._raw.abort()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Have another protocol in the place of the one that the handshake made."""
        self._app = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that it is the transport of, itself until there is one."""
        return self if self._app is None else self._app

    def is_closing(self) -> bool:
        """Tell whether it ends, or has ended."""
        return self._closing

    def pause_reading(self) -> None:
        """Hand on nothing more for now, and take nothing more either."""
        self._reading = False
        if self._raw is not None:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Go on reading, with what was decrypted first."""
        self._reading = True
        if self._raw is not None and not self._closing:
            self._raw.resume_reading()
            asyncio.get_running_loop().call_soon(self._deliver)

    def is_reading(self) -> bool:
        """Tell whether it reads."""
        return self._reading and not self._closing

    def get_write_buffer_size(self) -> int:
        """Return the encrypted bytes that are unsent."""
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how many encrypted bytes may be unsent before the other protocol is to pause."""
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the socket's transport knows, and the context as `sslcontext`."""
        if name == "sslcontext":
            return self._context
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    # What is between

    def _shake_hands(self) -> bool:
        """Go on with the handshake; tell whether the other protocol is there."""
        assert self._tls is not None  # noqa: S101 - there is one from the beginning to the end of the connection
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._flush()
            self._fail((error.reason or "it is no TLS").lower().replace("_", " "))
            return False
        self._leave_handshake()
        self._app = self._make()
        self._app.connection_made(self)
        self._flush()
        return True

    def _leave_handshake(self, fault: str | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._handshakes.handshake_over(self, fault)

    def _refuse_plain(self) -> None:
        """Answer who speaks no TLS, such as a browser that was given http:// for https://."""
        if self._raw is not None:
            self._raw.write(closing_bytes(wire(refusal_answer(_PLAIN))))
        self._fail("it is no TLS")

    def _fail(self, fault: str) -> None:
        """End a connection whose handshake failed, with what was said of it."""
        self._leave_handshake(f"The TLS handshake failed: {fault}.")
        self._closing = True
        if self._raw is not None:
            if self._raw.get_write_buffer_size():
                self._raw.abort()
            self._raw.close()

    def _deliver(self) -> None:
        """Hand on what is there, as long as the other protocol takes it."""
        while self._reading and not self._closing and not self._ended:
            if self._tls is None or self._app is None:
                return
            try:
                data = self._tls.read(PIECE)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError:
                self._flush()  # the alert that says why
                self.abort()
                return
            if data:
                self._app.data_received(data)
            else:
                self._end()
        self._flush()

    def _end(self) -> None:
        """Hand on that the client said its last."""
        self._ended = True
        if self._app is None or not self._app.eof_received():
            self.close()

    def _flush(self) -> None:
        if self._raw is not None and not self._closing and self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def _say_bye(self) -> None:
        """Send the last record (RFC 8446 section 6.1); nobody waits for that of the client."""
        if self._tls is None or self._closing or self._said_bye:
            return
        self._said_bye = True
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()


_PLAIN: Final = refusal(
    "bad_request", "This port speaks HTTPS, not plain HTTP: write https:// instead of http://."
)
