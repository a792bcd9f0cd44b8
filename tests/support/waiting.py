"""Waiting for conditions, never for luck."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


@overload
async def until(condition: Callable[[], Awaitable[T]], *, within: float = ..., what: str = ...) -> T: ...


@overload
async def until(condition: Callable[[], T], *, within: float = ..., what: str = ...) -> T: ...


async def until(condition: Callable[[], T | Awaitable[T]], *, within: float = 10.0, what: str = "") -> T:
    """Return the condition's first true value; fail when there is none within so many seconds."""
    deadline = time.monotonic() + within
    while True:
        value = condition()
        result: T = await value if inspect.isawaitable(value) else value
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what or condition}; last value {result!r}")
        await asyncio.sleep(0.005)


def until_sync(condition: Callable[[], T], *, within: float = 10.0, what: str = "") -> T:
    """Like `until`, outside of an event loop."""
    deadline = time.monotonic() + within
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what or condition}; last value {value!r}")
        time.sleep(0.005)
    return value
