"""Fixtures of every test: above all, nothing may be left over when one ends."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import pytest_asyncio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

FIXTURES = Path(__file__).parent / "fixtures"
GRACE = 3.0

# a shell that starts the tests in the background has it ignored, which the programs that they start would inherit
signal.signal(signal.SIGINT, signal.default_int_handler)

# the same examples for everybody: what fails elsewhere fails here; `HYPOTHESIS_PROFILE=explore` looks for new ones
hypothesis.settings.register_profile("same", derandomize=True, database=None)
hypothesis.settings.register_profile("explore", derandomize=False, database=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

_DESELECTED = pytest.StashKey[int]()


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count what is left out; lanes do not tell by themselves."""
    if items:
        stash = items[0].config.stash
        stash[_DESELECTED] = stash.get(_DESELECTED, 0) + len(items)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the one who started this lane how many tests were left out."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["deselected"] = session.config.stash.get(_DESELECTED, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take from a lane how many tests were left out: every lane leaves out the same ones."""
    node.config.stash[_DESELECTED] = getattr(node, "workeroutput", {}).get("deselected", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were left out."""
    config = terminalreporter.config
    if count := config.stash.get(_DESELECTED, 0):
        terminalreporter.write_line(f"{count} tests were left out (-m {config.option.markexpr!r})")


def _descriptors() -> dict[str, str]:
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found[entry.name] = str(entry.readlink())
        except OSError:
            continue
    return {
        fd: target
        for fd, target in found.items()
        if not target.startswith(("/proc/", "anon_inode:[eventpoll]"))
    }


def _threads() -> set[str]:
    return {f"{t.name} ({t.ident})" for t in threading.enumerate()}


def _children() -> set[str]:
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.update((task / "children").read_text().split())
        except OSError:
            continue
    return found


def _left_over(before: tuple[dict[str, str], set[str], set[str]]) -> list[str]:
    descriptors, threads, children = before
    left = [f"descriptor {fd} -> {t}" for fd, t in _descriptors().items() if descriptors.get(fd) != t]
    left += [f"thread {t}" for t in _threads() - threads]
    left += [f"child {c}" for c in _children() - children]
    return left


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a thread, a descriptor or a child process behind."""
    before = (_descriptors(), _threads(), _children())
    yield
    deadline = time.monotonic() + GRACE
    while left := _left_over(before):
        gc.collect()
        if time.monotonic() > deadline:
            pytest.fail(f"left over after {request.node.name}: {left}")
        time.sleep(0.01)


@pytest_asyncio.fixture(autouse=True)
async def no_leaked_tasks(no_leaks: None) -> AsyncIterator[None]:
    """Fail a test that leaves an asyncio task behind (those of the test's own fixtures end before)."""
    before = asyncio.all_tasks()
    yield
    loop = asyncio.get_running_loop()
    deadline = loop.time() + GRACE
    while left := [t for t in asyncio.all_tasks() - before if t is not asyncio.current_task()]:
        if loop.time() > deadline:
            pytest.fail(f"tasks left over: {left}")
        await asyncio.sleep(0.01)
