"""Certificates in the configuration: read once, part of what it is, put together from file and environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar import config
from tests.support.certificates import Files, make_pair

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A pair."""
    return make_pair(tmp_path_factory.mktemp("tls"))


def built(files: Files, text: str, **environ: str) -> config.Config:
    """Load a configuration that lies beside the pair."""
    cwd = str(files.cert.parent)
    return config.build(text.encode(), "config.yaml", config.Flags(), environ, cwd=cwd)


def test_file_and_environment_may_say_a_half_each(files: Files) -> None:
    """As with any two keys of a block."""
    found = built(files, "listen: {tls: {cert: tls.pem}}", SIDECAR_LISTEN__TLS__KEY=str(files.key))
    pair = found.pairs.of(found.listen.tls)
    assert pair is not None
    assert (pair.cert, pair.key) == (str(files.cert), str(files.key))
    assert found.settings_for("a", "/srv/a").tls
    assert set(found.pairs.files) == {str(files.cert), str(files.key)}
    assert found.guarded == (found.source, str(files.key))


def test_a_pair_is_read_once_for_both_listeners(files: Files) -> None:
    """So that tickets of one are good at the other, and nothing is held twice."""
    both = "{tls: {cert: tls.pem, key: tls.key}}"
    found = built(files, f"listen: {both}\ndesk: {both}")
    context = found.pairs.context(found.listen.tls)
    assert context is not None
    assert context is found.pairs.context(found.desk.tls)
    assert built(files, f"listen: {both}\ndesk: {both}") == found


def test_other_bytes_are_another_configuration(tmp_path: Path) -> None:
    """Although its file is the same, so that a reload takes it over; what cannot be read stays as it was."""
    files = make_pair(tmp_path)
    text = "desk: {tls: {cert: tls.pem, key: tls.key}}"
    before = built(files, text)
    assert before.pairs.read_again() == before.pairs
    files.replace_by(make_pair(tmp_path, "other"))
    after = built(files, text)
    assert after != before
    assert after.pairs.renewed_since(before.pairs) == [str(files.cert)]
    assert before.pairs.read_again() == after.pairs
    files.key.unlink()
    assert after.pairs.read_again() == after.pairs


def test_without_tls_nothing_is_read(files: Files) -> None:
    """And nothing is watched or guarded."""
    found = built(files, "listen: {tls: null}\ndesk:\n  tls:\n")
    assert found.pairs.context(found.listen.tls) is None
    assert (dict(found.pairs.files), found.guarded) == ({}, (found.source,))
    assert not found.settings_for("a", "/srv/a").tls
