"""Log lines: their form, and what must never get into one."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from sidecar.ops import log

if TYPE_CHECKING:
    from collections.abc import Iterator


class Terminal(io.BytesIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Undo what `configure` does to the process."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    logging.captureWarnings(False)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def lines(stream: io.BytesIO) -> list[dict[str, Any]]:
    """Return the JSON lines written so far."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def fail(message: str) -> None:
    """Raise an error."""
    raise RuntimeError(message)


def test_a_line_is_one_json_object_with_time_level_and_event_first() -> None:
    """Elsewhere than on a terminal a line is JSON: ISO 8601 time in UTC, level, event, then the fields as given."""
    out = io.BytesIO()
    log.configure(level="info", form="auto", stream=out)
    structlog.get_logger().info("capsule_serving", capsule="hello", port=24000, planes=("files",), error=None)
    (line,) = lines(out)
    assert list(line) == ["timestamp", "level", "event", "capsule", "port", "planes", "error"]
    assert line["timestamp"].endswith("Z")
    assert line["timestamp"][10] == "T"
    assert (line["level"], line["event"], line["planes"]) == ("info", "capsule_serving", ["files"])


def test_a_terminal_gets_colours_and_no_json() -> None:
    """`auto` on a terminal is the console form in colours."""
    out = Terminal()
    log.configure(level="info", form="auto", stream=out)
    structlog.get_logger().warning("capsule_unbound", reason="port busy")
    assert b"\x1b[33mwarning \x1b[0m\x1b[1mcapsule_unbound\x1b[0m" in out.getvalue()
    assert b'="port busy"\n' in out.getvalue()


@pytest.mark.parametrize(("stream", "environ"), [(io.BytesIO(), {}), (Terminal(), {"NO_COLOR": "1"})])
def test_there_are_no_colours_off_a_terminal_or_where_nobody_wants_them(
    stream: io.BytesIO, environ: dict[str, str]
) -> None:
    """`console` without a terminal, or with NO_COLOR, writes no escape sequence at all."""
    log.configure(level="info", form="console", stream=stream, environ=environ)
    structlog.get_logger().error("capsule_refused", capsule="a")
    assert b"\x1b" not in stream.getvalue()
    assert stream.getvalue().endswith(b" error   capsule_refused capsule=a\n")


def test_json_is_written_to_a_terminal_that_asks_for_it() -> None:
    """`json` wins over the terminal."""
    out = Terminal()
    log.configure(level="info", form="json", stream=out)
    structlog.get_logger().info("ready")
    assert lines(out)[0]["event"] == "ready"


@pytest.mark.parametrize("form", ["json", "console"])
@given(text=st.text())
def test_no_value_can_drive_a_terminal_or_begin_a_line(form: str, text: str) -> None:
    """H44: control characters, bidi marks and lone surrogates in a value or a key are made visible in both forms."""
    out = io.BytesIO()
    log.configure(level="info", form=form, stream=out)
    structlog.get_logger().info(
        "manifest_refused", name=text, path="\x1b[2J\x9b\n\u202e\udcff", nested={text: [text]}
    )
    written = out.getvalue().decode()
    assert written.endswith("\n")
    assert written[:-1].isprintable()
    assert "\\x1b[2J\\x9b\\n\\u202e\\udcff" in written.replace("\\\\", "\\")


def test_a_value_with_spaces_cannot_look_like_further_fields() -> None:
    """In the console form text with blanks, quotes or `=` stands in quotes."""
    out = io.BytesIO()
    log.configure(level="info", form="console", stream=out)
    structlog.get_logger().info("x", a='b" level=error', c="", d=[1, "e f"])
    assert out.getvalue().endswith(b"""x a="b' level=error" c="" d=[1,"e f"]\n""")


def test_long_values_are_cut() -> None:
    """A text, a list and a nesting are bounded, and so is a line."""
    out = io.BytesIO()
    log.configure(level="info", form="json", stream=out)
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"k": deep}
    structlog.get_logger().info("x", text="t" * 10_000, many=list(range(10_000)), deep=deep, big=2**80)
    (line,) = lines(out)
    assert line["text"] == "t" * log.LONGEST + "…"
    assert len(line["many"]) == log.MOST_ITEMS
    assert len(json.dumps(line["deep"])) < 600
    assert line["big"] == str(2**80)


def test_secrets_are_hidden_wherever_they_stand() -> None:
    """A value under a secret's name, a bearer credential, a key, a token and a peer handle in a text are not written."""
    out = io.BytesIO()
    log.configure(level="info", form="json", stream=out)
    structlog.get_logger().info(
        "x",
        token="s3cret",
        headers={"Authorization": "Bearer s3cret"},
        message="GET /resources/peer/mh1.s3cret.s3cret with Authorization: Bearer s3cret",
        sent=["sc_ak_s3cret", "?key=sc_pat_s3cret&x", "sc_rt_s3cret.s3cret"],
    )
    assert b"s3cret" not in out.getvalue()
    assert "/resources/peer/mh1.[hidden] with" in lines(out)[0]["message"]


def test_the_level_says_what_is_written_and_may_change_at_a_reload() -> None:
    """Lines below the level are not written; configuring again changes that for loggers made before."""
    out = io.BytesIO()
    logger = structlog.get_logger()
    log.configure(level="warning", form="json", stream=out)
    logger.info("one")
    log.configure(level="debug", form="json", stream=out)
    logger.debug("two")
    assert [line["event"] for line in lines(out)] == ["two"]


def test_an_exception_is_told_in_one_line() -> None:
    """What it is and where it came from are two bounded fields, never a traceback over many lines."""
    out = io.BytesIO()
    log.configure(level="info", form="json", stream=out)
    try:
        fail("first\nsecond")
    except RuntimeError:
        structlog.get_logger().exception("scan_failed", path="/c")
    (line,) = lines(out)
    assert line["error"] == "RuntimeError: first\\nsecond"
    assert line["where"].startswith("test_logging.py:")
    assert b"Traceback" not in out.getvalue()


def test_libraries_log_through_the_same_pipeline_from_warning_up() -> None:
    """Records of asyncio and aiohttp become `library_message`, a broken format included; their chatter does not."""
    out = io.BytesIO()
    log.configure(level="debug", form="json", stream=out)
    logging.getLogger("asyncio").info("chatter")
    logging.getLogger("aiohttp.server").warning("odd %s", "\x1b")
    logging.getLogger("aiohttp.server").error("broken %d", "x", exc_info=ValueError("v"))
    logging.getLogger("aiohttp.server").critical("last")
    first, second, third = lines(out)
    assert (first["event"], first["logger"], first["level"]) == (
        "library_message",
        "aiohttp.server",
        "warning",
    )
    assert first["message"] == "odd \\x1b"
    assert (second["level"], second["message"], second["error"]) == ("error", "broken %d", "ValueError: v")
    assert third["level"] == "error"


def test_a_log_that_nobody_reads_stops_nothing() -> None:
    """A closed stream makes the line vanish; no error reaches the code that logged."""
    out = io.BytesIO()
    log.configure(level="info", form="json", stream=out)
    out.close()
    structlog.get_logger().info("ready")


def test_a_field_cannot_replace_the_head_of_a_line() -> None:
    """A field called `level` or `timestamp` is kept under another name."""
    out = io.BytesIO()
    log.configure(level="info", form="json", stream=out)
    structlog.get_logger().info("x", level="y", timestamp=1)
    (line,) = lines(out)
    assert (line["level"], line["level_"], line["timestamp_"]) == ("info", "y", 1)
