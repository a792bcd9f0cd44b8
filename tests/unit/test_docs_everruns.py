"""What docs/everruns.md shows is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sidecar.desk import channels
from sidecar.desk.channel_asks import CHANNEL
from sidecar.dialects import everruns
from sidecar.doors import everruns_stream
from sidecar.ops.metrics import OF_CHANNELS
from sidecar.tasks.said import NotSaidError, read
from tests.unit.test_docs_a2a import bare

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "everruns.md").read_text()


def rows(head: str) -> str:
    """Return a table of the page, by the first cell of its head."""
    return PAGE.partition(f"| {head} |")[2].partition("\n\n")[0]


def test_the_client_of_the_page_is_the_example() -> None:
    """What matters of it, line by line."""
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    example = (PROJECT / "examples" / "clients" / "everruns_chat.py").read_text()
    assert bare(shown) == bare(example)


def test_the_page_lists_every_route() -> None:
    """All that the desk has below an agent base URL, and nothing else."""
    listed = re.findall(r"^\| `\w+ (/[\w/{}-]+)", PAGE, re.MULTILINE)
    routes = {
        channels.SESSIONS,
        channels.SESSION,
        channels.MESSAGES,
        channels.EVENTS,
        channels.STREAM,
        channels.CANCEL,
        channels.RUNTIME_AUTH,
    }
    assert {CHANNEL + path for path in listed} == routes


def test_the_page_says_what_becomes_of_everything_that_a_worker_says() -> None:
    """Every type of the workers' vocabulary, and every type of event, is in its table."""
    table = rows("The worker says")
    with pytest.raises(NotSaidError) as refused:
        read({"type": "?"})
    taken = str(refused.value).removeprefix("type must be one of ").split(", ")
    first = "".join(row.split("|")[1] for row in table.splitlines()[2:])
    assert sorted(re.findall(r"`([a-z-]+)`", first)) == sorted(taken)
    for name in ("INPUT", "STARTED", "DELTA", "OUTPUT", "COMPLETED", "FAILED", "CANCELLED"):
        assert f"`{getattr(everruns, name)}`" in table


def test_the_page_names_every_reason_and_every_code() -> None:
    """Why streams end, and how refusals of this view alone are called."""
    reasons = {
        everruns_stream.TURN_CANCELLED,
        everruns_stream.STOPPING,
        everruns_stream.UNAVAILABLE,
        everruns_stream.CREDENTIAL_ENDED,
    }
    codes = OF_CHANNELS - {"input_not_accepted"}
    assert {word for word in reasons | codes if f"`{word}`" not in PAGE} == set()
