"""Loading from real files: which one is read, and what is said of one that cannot be."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sidecar import config
from sidecar.errors import InputError
from sidecar.model import Secret
from tests.support.somebody import AS_ROOT, open_place, somebody

if TYPE_CHECKING:
    from pathlib import Path


def refused(path: str | None, environ: dict[str, str] | None = None) -> str:
    """Return the only problem of a configuration that is refused."""
    with pytest.raises(InputError) as caught:
        config.load(path, config.Flags(), environ or {})
    (problem,) = caught.value.problems
    return str(problem)


def test_the_flag_names_the_file_before_the_environment_does(tmp_path: Path) -> None:
    """`--config` wins over SIDECAR_CONFIG; both start at the current directory."""
    (tmp_path / "flag.yaml").write_text("card: reference")
    (tmp_path / "environment.yaml").write_text("card: full")
    environ = {"SIDECAR_CONFIG": "environment.yaml"}
    found = config.load(None, config.Flags(), environ, cwd=str(tmp_path))
    assert (found.source, found.card) == (str(tmp_path / "environment.yaml"), "full")
    found = config.load("flag.yaml", config.Flags(), environ, cwd=str(tmp_path))
    assert (found.source, found.card) == (str(tmp_path / "flag.yaml"), "reference")


def test_a_file_that_lies_about_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a named file counts."""
    (tmp_path / "config.yaml").write_text("card: reference")
    monkeypatch.chdir(tmp_path)
    assert config.load(None, config.Flags(roots=(".",)), {}).card == "full"
    with pytest.raises(InputError, match="no configuration"):
        config.load(None, config.Flags(), {})


def test_a_file_that_is_missing_is_said_with_the_way_to_make_one(tmp_path: Path) -> None:
    """The path is shown as it was given."""
    missing = str(tmp_path / "none.yaml")
    assert (
        refused(missing)
        == f"{missing}: E-CFG-001 cannot be read: No such file or directory; `sidecar init` writes one"
    )


@pytest.mark.skipif(not AS_ROOT, reason="only root can become another user for a while")
def test_a_file_that_another_user_alone_may_read_is_said_with_what_to_do() -> None:
    """The configuration, a secret, a certificate: all of them in the same words."""
    said = "cannot be read: Permission denied (let the user that runs the sidecar read it)"
    with open_place() as place:
        file, secret = place / "c.yaml", place / "secret"
        file.touch(mode=0o600)
        secret.touch(mode=0o600)
        with somebody():
            assert refused(str(file)) == f"{file}: E-CFG-001 {said}"
        file.chmod(0o644)
        for text, key in (
            ("auth: {worker_token: {file: secret}}", "auth.worker_token"),
            ("desk: {tls: {cert: secret, key: secret}}", "desk.tls.cert"),
        ):
            file.write_text(text)
            with somebody():
                assert refused(str(file)).endswith(f"{key}: {secret} {said}")


def test_a_directory_is_no_configuration(tmp_path: Path) -> None:
    """The message says so."""
    assert (
        refused(None, {"SIDECAR_CONFIG": str(tmp_path)})
        == f"{tmp_path}: E-CFG-001 cannot be read: Is a directory"
    )


def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    """Nothing is built from it."""
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (1 << 20) + b"\ncard: full\n")
    assert "E-CFG-002 is longer than 1048576 bytes" in refused(str(large))


def test_a_path_that_is_not_utf8_works(tmp_path: Path) -> None:
    """Names are bytes to the kernel."""
    directory = tmp_path / os.fsdecode(b"\xff")
    directory.mkdir()
    (directory / "c.yaml").write_text("card: reference")
    found = config.load(str(directory / "c.yaml"), config.Flags(), {})
    assert found.roots[0].path == str(directory / "capsules")


def test_a_current_directory_that_is_gone_does_not_matter_to_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sidecar started from a temporary directory can still reload."""
    (tmp_path / "c.yaml").write_text("roots: [{path: caps}]")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    found = config.load(str(tmp_path / "c.yaml"), config.Flags(), {})
    assert found.roots[0].path == str(tmp_path / "caps")


def test_settings_tied_to_a_directory_hold_however_it_is_reached(tmp_path: Path) -> None:
    """`capsules.<id>.path` may lead through links."""
    (tmp_path / "real" / "a").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "c.yaml").write_text("capsules: {a: {path: link/a, port: 24001}}")
    found = config.load(str(tmp_path / "c.yaml"), config.Flags(), {})
    assert found.settings_for("a", str(tmp_path / "real" / "a")).port == 24001
    assert found.settings_for("a", str(tmp_path / "real")).port is None


def test_the_kernel_says_which_ports_are_its_own() -> None:
    """B25: the range comes from the running kernel, which the caller hands in."""
    found = config.ephemeral_ports()
    assert found is None or 1 <= found.first <= found.last <= 65535


def test_a_secret_is_read_from_its_file_at_each_load(tmp_path: Path) -> None:
    """Relative to the configuration; another text is another configuration."""
    (tmp_path / "c.yaml").write_text("auth: {worker_token: {file: secrets/token}}")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "token").write_text("one\n")
    before = config.load(str(tmp_path / "c.yaml"), config.Flags(), {})
    assert before.auth.worker_token == Secret("one")
    assert before == config.load(str(tmp_path / "c.yaml"), config.Flags(), {})
    (tmp_path / "secrets" / "token").write_text("two\n")
    assert before != config.load(str(tmp_path / "c.yaml"), config.Flags(), {})
    environ = {"SIDECAR_AUTH__WORKER_TOKEN__FILE": "token"}
    (tmp_path / "token").write_text("three")
    found = config.load(str(tmp_path / "c.yaml"), config.Flags(), environ, cwd=str(tmp_path))
    assert found.auth.worker_token == Secret("three")


def test_a_secret_whose_file_cannot_be_read_is_said_with_its_place(tmp_path: Path) -> None:
    """Nothing of it is shown, and nobody is waited for."""
    file, token = tmp_path / "c.yaml", tmp_path / "token"
    file.write_text("auth:\n  worker_token: {file: token}\n")
    place = f"{file}:2:17: E-CFG-004 auth.worker_token: {token}"
    assert refused(str(file)) == f"{place} cannot be read: No such file or directory"
    token.mkdir()
    assert refused(str(file)) == f"{place} cannot be read: Is a directory"
    token.rmdir()
    os.mkfifo(token)
    assert refused(str(file)) == f"{place} cannot be read: it is no file"
    token.unlink()
    token.write_bytes(b"")
    assert refused(str(file)) == f"{place} is empty"
    token.write_bytes(b"hunter2\xff")
    assert refused(str(file)) == f"{place} is not UTF-8 text"
    token.write_bytes(b"x" * (64 * 1024 + 1))
    assert refused(str(file)) == f"{place} cannot be read: it is longer than 65536 bytes"
    token.write_bytes(b"hunter2\nhunter3\n")
    assert refused(str(file)) == f"{place} holds more than one word of visible ASCII, which no token does"


def test_the_state_is_found_however_wrong_the_rest_is(tmp_path: Path) -> None:
    """A sidecar that runs is to be found by who has none of its secrets, or has just broken its file."""
    file = tmp_path / "config.yaml"
    file.write_text("state: ./here\nroots: 5\nauth: {worker_token: {env: NOT_AT_HAND}}\nunknown: {}\n")
    with pytest.raises(InputError):
        config.load(str(file), config.Flags(), {})
    assert config.state_of(str(file), {}) == str(tmp_path / "here")
    assert config.state_of("config.yaml", {"SIDECAR_CONFIG": "another.yaml"}, cwd=str(tmp_path)) == str(
        tmp_path / "here"
    )
    assert config.state_of(None, {"SIDECAR_CONFIG": str(file)}) == str(tmp_path / "here")
    assert config.state_of(str(file), {"SIDECAR_STATE": "/there"}) == "/there"
    file.write_text("roots: []\n")
    assert config.state_of(str(file), {}) is None
    assert config.state_of(None, {}) is None


def test_a_state_that_is_no_path_is_said_with_its_place(tmp_path: Path) -> None:
    """And a file that is no YAML, since nothing can be found in it."""
    file = tmp_path / "config.yaml"
    for text, says in (("a: 1\nstate: [x]\n", "config.yaml:2:8"), ("state: {\n", "config.yaml:2:1")):
        file.write_text(text)
        with pytest.raises(InputError) as caught:
            config.state_of(str(file), {})
        assert says in str(caught.value.problems[0])
