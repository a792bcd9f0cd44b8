"""Reading a certificate and its key: what is good, and what is said of what is not."""

from __future__ import annotations

import hashlib
import os
import ssl
import subprocess
from typing import TYPE_CHECKING

import pytest

from sidecar.certificates import CertificateError, read_pair
from tests.support.certificates import Files, make_pair

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A pair."""
    return make_pair(tmp_path_factory.mktemp("pair"))


def read(cert: Path, key: Path) -> tuple[str, str]:
    """Return which file is to blame, and for what."""
    with pytest.raises(CertificateError) as refused:
        read_pair(str(cert), str(key))
    return refused.value.part, str(refused.value)


@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_a_pair_is_read_with_its_fingerprint(kind: str, tmp_path: Path) -> None:
    """Also where a chain follows, where text stands around it, and where one file holds both."""
    files = make_pair(tmp_path, kind, kind)
    more = make_pair(tmp_path, "more").cert.read_text()
    plain = read_pair(str(files.cert), str(files.key))
    whole = tmp_path / "whole.pem"
    whole.write_text(f"subject: me\n{files.cert.read_text()}\n{more}{files.key.read_text()}")
    both = read_pair(str(whole), str(whole))
    assert plain.fingerprint == both.fingerprint == hashlib.sha256(files.der).hexdigest()
    assert isinstance(both.context, ssl.SSLContext)
    assert (plain != both, plain.exposed) == (True, False)


def test_pairs_are_equal_as_long_as_their_bytes_are(files: Files, tmp_path: Path) -> None:
    """However often they are read, and whenever they were written; a context is made for each."""
    first, second = (read_pair(str(files.cert), str(files.key)) for _ in range(2))
    assert first == second
    assert first.context is not second.context
    copy = tmp_path / "copy.pem"
    copy.write_bytes(files.cert.read_bytes())
    before = read_pair(str(copy), str(files.key))
    os.utime(copy, (1, 1))
    after = read_pair(str(copy), str(files.key))
    assert before == after
    assert before.seen != after.seen
    copy.write_text(copy.read_text() + "\n")
    assert read_pair(str(copy), str(files.key)) != after


@pytest.mark.parametrize(("mode", "exposed"), [(0o600, False), (0o640, False), (0o644, True), (0o602, True)])
def test_a_key_that_everybody_may_open_is_exposed(
    files: Files, tmp_path: Path, mode: int, *, exposed: bool
) -> None:
    """A group is somebody's own choice."""
    key = tmp_path / "key.pem"
    key.write_bytes(files.key.read_bytes())
    key.chmod(mode)
    assert read_pair(str(files.cert), str(key)).exposed is exposed


def test_what_cannot_be_used_is_told_apart(files: Files, tmp_path: Path) -> None:
    """Which of the two files it is, why, and what to do; nothing of what stands in a key."""
    other, rsa, weak = (make_pair(tmp_path, kind, kind) for kind in ("ec", "rsa", "weak"))
    locked, older = tmp_path / "locked.key", tmp_path / "older.key"
    for command in (
        ["openssl", "pkey", "-in", str(files.key), "-aes256", "-out", str(locked)],
        ["openssl", "rsa", "-traditional", "-in", str(rsa.key), "-aes256", "-out", str(older)],
    ):
        subprocess.run([*command, "-passout", "pass:x"], check=True, capture_output=True)
    none = tmp_path / "none"
    os.mkfifo(pipe := tmp_path / "pipe")
    long = tmp_path / "long"
    long.write_bytes(b"x" * (2 << 20))
    lines = files.cert.read_text().splitlines()
    (broken := tmp_path / "broken.pem").write_text("\n".join((*lines[:2], "AAAA", lines[-1])))
    (cut := tmp_path / "cut.pem").write_text("\n".join(lines[:-1]))
    secret = files.key.read_text().splitlines()
    (spoilt := tmp_path / "spoilt.key").write_text("\n".join((secret[0], "AAAA", secret[-1])))

    assert read(none, files.key) == ("cert", f"{none} cannot be read: No such file or directory")
    assert read(files.cert, none) == ("key", f"{none} cannot be read: No such file or directory")
    assert read(tmp_path, files.key)[0] == "cert"
    assert read(pipe, files.key) == ("cert", f"{pipe} is no file")
    assert read(long, files.key) == ("cert", f"{long} is longer than 1048576 bytes")
    for path in (cut, files.key):
        assert "holds no certificate in PEM" in read(path, files.key)[1]
    assert read(broken, files.key) == ("cert", "holds a certificate that cannot be read")
    assert "holds no private key in PEM" in read(files.cert, files.cert)[1]
    assert read(files.cert, spoilt) == ("key", "holds a key that cannot be read")
    for path in (locked, older):
        assert "behind a passphrase" in read(files.cert, path)[1]
    for stranger in (other, rsa):
        assert read(files.cert, stranger.key) == (
            "key",
            f"is not the key of the first certificate in {files.cert}",
        )
    assert read(weak.cert, weak.key) == ("cert", "is too weak: key too small")
