"""Entries of the journal: when lines become some, what they hold, and how the journal reads them."""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import sys
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from sidecar.cli.output import complain
from sidecar.ops import journal, log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Undo what `configure` does to the process."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    logging.captureWarnings(False)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def read(entry: bytes) -> dict[str, bytes]:
    """Read an entry as the protocol says: `NAME=value` lines, or a name, a length of eight bytes and that many."""
    found = {}
    while entry:
        head, _, rest = entry.partition(b"\n")
        name, equals, value = head.partition(b"=")
        if not equals:
            size = int.from_bytes(rest[:8], "little")
            value, end, rest = rest[8 : 8 + size], rest[8 + size : 9 + size], rest[9 + size :]
            assert end == b"\n"
        found[name.decode()] = value
        entry = rest
    return found


def test_an_entry_has_the_priority_of_its_line_and_each_field_by_itself() -> None:
    """Text stands as it is, other values as JSON; time and level are the journal's own."""
    line = {
        "timestamp": "t",
        "level": "warning",
        "event": "x",
        "capsule": "a",
        "port": 1,
        "of": ["b"],
        "no": None,
    }
    assert read(journal.entry(line, b"message")) == {
        "MESSAGE": b"message",
        "PRIORITY": b"4",
        "SYSLOG_IDENTIFIER": b"sidecar",
        "SIDECAR_EVENT": b"x",
        "SIDECAR_CAPSULE": b"a",
        "SIDECAR_PORT": b"1",
        "SIDECAR_OF": b'["b"]',
        "SIDECAR_NO": b"null",
    }


@given(st.dictionaries(st.text(min_size=1), st.text() | st.integers(0, 9) | st.lists(st.text())))
def test_no_field_can_become_another(fields: dict[str, object]) -> None:
    """Whatever names and values are, an entry has no field but those of its line, under names that the journal takes."""
    line = log.finish(None, "info", {"event": "x", **{f"k{key}": value for key, value in fields.items()}})
    found = read(journal.entry(line, log.as_json(None, "info", line)))
    assert json.loads(found["MESSAGE"]) == line
    for name in found:
        assert name.replace("_", "A").isalnum()
        assert name.isascii()
        assert name == name.upper()
        assert len(name) <= 64
    assert {n for n in found if not n.startswith("SIDECAR_")} == {"MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER"}


def test_a_value_of_several_lines_is_one_field() -> None:
    """It has its length before it, as the protocol has it."""
    line = {"level": "info", "event": "x", "text": "a\nPRIORITY=0"}
    assert read(journal.entry(line, b"m"))["SIDECAR_TEXT"] == b"a\nPRIORITY=0"


def test_only_the_stream_that_the_manager_connected_is_the_journal(tmp_path: Path) -> None:
    """`JOURNAL_STREAM` is inherited by whoever is started; it names the device and inode that it means."""
    with (tmp_path / "a").open("wb") as file:
        found = os.fstat(file.fileno())
        mine = f"{found.st_dev}:{found.st_ino}"
        assert journal.leads_there(file, {"JOURNAL_STREAM": mine})
        for other in (f"{found.st_dev}:{found.st_ino + 1}", f"{mine}:", "", ":", "nonsense"):
            assert not journal.leads_there(file, {"JOURNAL_STREAM": other})
        assert not journal.leads_there(file, {})
    assert not journal.leads_there(file, {"JOURNAL_STREAM": mine})
    assert not journal.leads_there(io.BytesIO(), {"JOURNAL_STREAM": mine})


def test_lines_go_to_the_journal_where_standard_error_does(tmp_path: Path) -> None:
    """With fields over its socket as long as it listens, and over the stream when it does not."""
    place = tmp_path / "socket"
    with (tmp_path / "stream").open("w+b") as stream:
        found = os.fstat(stream.fileno())
        environ = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(place))
            listener.settimeout(10)
            log.configure(level="info", form="auto", stream=stream, environ=environ, journal_at=str(place))
            structlog.get_logger().error("capsule_unbound", capsule="a")
            entry = read(listener.recv(65536))
            assert (entry["PRIORITY"], entry["SIDECAR_CAPSULE"]) == (b"3", b"a")
            assert json.loads(entry["MESSAGE"])["event"] == "capsule_unbound"
            logging.getLogger("asyncio").warning("from a library")
            assert read(listener.recv(65536))["SIDECAR_LOGGER"] == b"asyncio"
            log.configure(level="info", form="console", stream=stream, environ=environ, journal_at=str(place))
            structlog.get_logger().info("ready", version="1")
            assert read(listener.recv(65536))["MESSAGE"].endswith(b" info    ready version=1")
        structlog.get_logger().info("stopped")
        stream.seek(0)
        assert stream.read().endswith(b" info    stopped\n")


def test_what_ends_a_start_is_an_error_in_the_journal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain line of the command line has the prefix of its priority there, and nowhere else."""
    found = os.fstat(sys.stderr.fileno())
    for inode, printed in ((found.st_ino, "<3>sidecar: no\n"), (found.st_ino + 1, "sidecar: no\n")):
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{inode}")
        complain("no")
        assert capfd.readouterr().err == printed
