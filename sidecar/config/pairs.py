"""The certificates that the configuration names: read when it is, and part of what it is."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from sidecar.certificates import CERT, KEY, CertificateError, Pair, read_pair
from sidecar.config.checks import Finding

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from sidecar.config.blocks import Tls
    from sidecar.config.schema import Keys

UNUSABLE: Final = "E-CFG-018"
EXPOSED: Final = "W-CFG-019"
SECTIONS: Final = ("listen", "desk")


class Pairs:
    """Certificates and their keys, by the paths of both. Equal to others of the same bytes."""

    __slots__ = ("_by_paths",)

    def __init__(self, by_paths: Mapping[tuple[str, str], Pair] = MappingProxyType({})) -> None:
        self._by_paths = by_paths

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pairs) and self._by_paths == other._by_paths

    def __hash__(self) -> int:
        return hash(tuple(self._by_paths))

    def __repr__(self) -> str:
        return f"Pairs({', '.join(cert for cert, _ in self._by_paths)})"

    def of(self, tls: Tls | None) -> Pair | None:
        """Return the pair that a listener shows, None where it speaks plain HTTP."""
        return None if tls is None else self._by_paths[tls.paths]

    def context(self, tls: Tls | None) -> ssl.SSLContext | None:
        """Return what new connections of a listener are encrypted by, None where it speaks plain HTTP."""
        pair = self.of(tls)
        return None if pair is None else pair.context

    @property
    def files(self) -> Mapping[str, tuple[int, ...]]:
        """The files, each with its identity when it was read."""
        return {path: seen for pair in self._by_paths.values() for path, seen in pair.seen.items()}

    @property
    def keys(self) -> tuple[str, ...]:
        """The files with keys, which are nobody else's business."""
        return tuple(dict.fromkeys(pair.key for pair in self._by_paths.values()))

    def renewed_since(self, before: Pairs) -> list[str]:
        """Return the files of certificates that were there before, and are others now."""
        return [
            pair.cert for paths, pair in self._by_paths.items() if before._by_paths.get(paths, pair) != pair
        ]

    def read_again(self) -> Pairs:
        """Read the files as they are now; a pair that cannot be used stays as it was."""
        found = dict(self._by_paths)
        for paths in self._by_paths:
            try:
                found[paths] = read_pair(*paths)
            except CertificateError:
                continue
        return Pairs(found)


def read_pairs(keys: Keys) -> tuple[Pairs, list[Finding]]:
    """Read the pairs that listeners show, each once, and return what is wrong with them."""
    found: dict[tuple[str, str], Pair] = {}
    findings = []
    for section in SECTIONS:
        tls: Tls | None = getattr(keys, section).tls
        if tls is None:
            continue
        paths, place = tls.paths, (section, "tls")
        if not all(paths):
            missing = " and ".join(name for name in (CERT, KEY) if getattr(tls, name) is None)
            findings.append(Finding(place, UNUSABLE, f"takes a certificate and its key: set {missing}"))
            continue
        try:
            pair = found[paths] = found.get(paths) or read_pair(*paths)
        except CertificateError as error:
            findings.append(Finding((*place, error.part), UNUSABLE, str(error)))
            continue
        if pair.exposed:
            message = f"everybody on this machine may open {pair.key}; chmod o= it"
            findings.append(Finding((*place, "key"), EXPOSED, message))
    return Pairs(found), findings
