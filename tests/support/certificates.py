"""Certificates made by the openssl command, and a TLS client that does what no library would."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NAMES = "subjectAltName=DNS:localhost,DNS:agents.example,IP:127.0.0.1"
KEYS = {"ec": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], "rsa": ["rsa:2048"], "weak": ["rsa:1024"]}


@dataclass(frozen=True, slots=True)
class Files:
    """Where a certificate and its key are."""

    cert: Path
    key: Path

    def trusted(self) -> ssl.SSLContext:
        """Return a client's context that trusts this certificate and no other."""
        return ssl.create_default_context(cafile=str(self.cert))

    @property
    def der(self) -> bytes:
        """The certificate as it is sent."""
        return ssl.PEM_cert_to_DER_cert(self.cert.read_text())

    def replace_by(self, other: Files) -> None:
        """Take another pair's place, each file by a rename."""
        other.key.rename(self.key)
        other.cert.rename(self.cert)


def make_pair(directory: Path, name: str = "tls", kind: str = "ec", *options: str) -> Files:
    """Make a self-signed certificate for this machine."""
    files = Files(directory / f"{name}.pem", directory / f"{name}.key")
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", NAMES]
    places = ["-newkey", *KEYS[kind], "-keyout", str(files.key), "-out", str(files.cert)]
    subprocess.run([*command, *places, *options], check=True, capture_output=True)
    files.key.chmod(0o600)
    return files


class Client:
    """A TLS client that can stop anywhere: in its handshake, with one side closed, without reading."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    async def shake_hands(self) -> None:
        """Do the handshake."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                await self._more()
            else:
                self.flush()
                return

    def flush(self, *, pieces: int | None = None) -> None:
        """Send what is encrypted, in pieces of so many bytes."""
        data = self.outgoing.read()
        for start in range(0, len(data), pieces or max(1, len(data))):
            self.writer.write(data[start : start + (pieces or len(data))])

    def send(self, data: bytes) -> None:
        """Encrypt and send."""
        self.tls.write(data)
        self.flush()

    def end(self, *, notified: bool = True) -> None:
        """Close this side alone: by the last record, or without it."""
        if notified:
            with suppress(ssl.SSLWantReadError):
                self.tls.unwrap()
            self.flush()
        self.writer.write_eof()

    async def read(self, *, until: bytes | None = None) -> bytes:
        """Read to the end, which must be a proper one, or until these bytes were seen."""
        seen = b""
        while until is None or until not in seen:
            try:
                data = self.tls.read(65536)
            except ssl.SSLWantReadError:
                await self._more()
                continue
            except ssl.SSLZeroReturnError:
                return seen
            if not data:
                return seen
            seen += data
        return seen

    async def _more(self) -> None:
        data = await self.reader.read(65536)
        if not data:
            raise EOFError("the connection ended without a last record")
        self.incoming.write(data)


@asynccontextmanager
async def dialed(port: int, context: ssl.SSLContext, *, within: float = 20.0) -> AsyncIterator[Client]:
    """Connect, without a handshake yet."""
    async with asyncio.timeout(within):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield Client(reader, writer, context)
        finally:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def connected(port: int, context: ssl.SSLContext, *, within: float = 20.0) -> AsyncIterator[Client]:
    """Connect and shake hands."""
    async with dialed(port, context, within=within) as client:
        await client.shake_hands()
        yield client
