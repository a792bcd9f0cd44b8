"""Pairs of a certificate and its private key, read and made ready for a listener."""

from __future__ import annotations

import os
import re
import ssl
import stat
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NoReturn

from sidecar.errors import unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MOST: Final = 1024 * 1024
"""Bytes of a file that holds a certificate or a key."""
CERT: Final = "cert"
KEY: Final = "key"

_OTHERS: Final = stat.S_IRWXO
_CERTIFICATE: Final = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY: Final = re.compile("-----BEGIN ((?:[A-Z0-9]+ )*)PRIVATE KEY-----")
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2 (RFC 9325 section 4.2); those of 1.3 are all good."""
_OF_CERTIFICATE: Final = frozenset({"EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"})
"""What OpenSSL calls a certificate that it finds too weak."""

_OF_ANOTHER: Final = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})
"""What it says of a key that belongs to another certificate, of the same kind or not."""


class CertificateError(Exception):
    """A pair that cannot be used; `part` is the file to blame, `cert` or `key`, the text says why and what to do."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its chain, and its key. Pairs of the same bytes from the same files are equal.

    `fingerprint` is the SHA-256 of the certificate in hex, `exposed` whether everybody on the machine may open the
    key's file, `seen` what each file was when it was read: device, inode, size, times of change of content and node
    (nanoseconds). `context` is for new connections of servers.
    """

    cert: str
    key: str
    digest: bytes = field(repr=False)
    fingerprint: str
    exposed: bool
    seen: Mapping[str, tuple[int, ...]] = field(compare=False, repr=False)
    context: ssl.SSLContext = field(compare=False, repr=False)


def read_pair(cert: str, key: str) -> Pair:
    """Read the files at two absolute paths. Raises CertificateError.

    Waits for nobody, as it would where a pipe is named or a passphrase asked for.
    """
    chain, of_chain = _read(CERT, cert)
    secret, of_secret = _read(KEY, key)
    fingerprint = _fingerprint(chain)
    _check_key(secret)
    digest = sha256(chain).digest() + sha256(secret).digest()
    exposed = bool(of_secret.st_mode & _OTHERS)
    seen = {cert: _identity(of_chain), key: _identity(of_secret)}
    return Pair(cert, key, digest, fingerprint, exposed, seen, _context(cert, chain, secret))


def _identity(facts: os.stat_result) -> tuple[int, ...]:
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _read(part: str, path: str) -> tuple[bytes, os.stat_result]:
    try:
        with open(path, "rb", opener=_open) as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise CertificateError(part, f"{path} is no file")
            found = file.read(MOST + 1)
    except OSError as error:
        raise CertificateError(part, f"{path} {unreadable(error)}") from None
    if len(found) > MOST:
        raise CertificateError(part, f"{path} is longer than {MOST} bytes")
    return found, facts


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)


def _fingerprint(chain: bytes) -> str:
    """Check that every certificate can be read, and return the fingerprint of the first."""
    blocks = _CERTIFICATE.findall(chain.decode("latin-1"))
    if not blocks:
        raise CertificateError(
            CERT, "holds no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----"
        )
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata="\n".join(blocks))
        return sha256(ssl.PEM_cert_to_DER_cert(blocks[0])).hexdigest()
    except (ssl.SSLError, ValueError):
        raise CertificateError(CERT, "holds a certificate that cannot be read") from None


def _check_key(secret: bytes) -> None:
    text = secret.decode("latin-1")
    found = _KEY.search(text)
    if found is None:
        message = "holds no private key in PEM, which begins with -----BEGIN PRIVATE KEY-----"
        raise CertificateError(KEY, message)
    if "ENCRYPTED" in found[1] or "Proc-Type: 4,ENCRYPTED" in text:
        message = (
            "holds a key behind a passphrase, which nobody is there to type: openssl pkey writes it without"
        )
        raise CertificateError(KEY, message)


def _context(cert: str, chain: bytes, secret: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        # OpenSSL reads from files; from these it reads just what was looked at
        for at_chain in _file(chain):
            for at_secret in _file(secret):
                context.load_cert_chain(at_chain, at_secret, password=_nobody)
    except ssl.SSLError as error:
        reason = error.reason or ""
        if reason in _OF_CERTIFICATE:
            raise CertificateError(CERT, f"is too weak: {_words(reason)}") from None
        if reason in _OF_ANOTHER:
            raise CertificateError(KEY, f"is not the key of the first certificate in {cert}") from None
        raise CertificateError(KEY, "holds a key that cannot be read") from None
    except OSError as error:
        raise CertificateError(CERT, f"cannot be handed to OpenSSL: {error.strerror}") from None
    return context


def _file(data: bytes) -> Iterator[str]:
    """Yield the path of a file in memory, as long as nobody goes on."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(data)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"


def _nobody() -> NoReturn:
    raise ssl.SSLError("a passphrase is asked for")


def _words(reason: str) -> str:
    return reason.lower().replace("_", " ").removeprefix("ee ").removeprefix("ca ")
