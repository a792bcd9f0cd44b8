"""Our ends of a process's pipes: read when we like, written as the process takes it; neither blocks the loop."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import IO

CHUNK: Final = 64 * 1024
"""Bytes that are moved at once: what a pipe holds."""


class Reader:
    """What a process writes. Nothing is read ahead, so a process that is not listened to waits in its pipe."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._fd = file.fileno()
        self._loop = asyncio.get_running_loop()
        self._left: int | None = None
        self._waiter: asyncio.Future[None] | None = None
        os.set_blocking(self._fd, False)

    async def read(self, most: int, *, within: float | None = None) -> bytes | None:
        """Return what is there, at most so many bytes, as soon as anything is; `b""` at the end.

        None when nothing came within so many seconds. One reader at a time.
        """
        while self._left != 0 and not self._file.closed:
            try:
                data = os.read(self._fd, most if self._left is None else min(most, self._left))
            except BlockingIOError:
                if self._left is not None:
                    break
                if not await self._readable(within):
                    return None
            except OSError:
                break
            else:
                if self._left is not None:
                    self._left -= len(data)
                return data
        return b""

    def finish(self) -> None:
        """Read no more than what is in the pipe now, though others may still hold it open."""
        if self._left is None and not self._file.closed:
            (self._left,) = struct.unpack("i", fcntl.ioctl(self._fd, termios.FIONREAD, b"\0" * 4))
            self._wake()

    def close(self) -> None:
        """Close our end: whoever writes to it from now on gets SIGPIPE."""
        if not self._file.closed:
            self._loop.remove_reader(self._fd)
            self._wake()
            self._file.close()

    async def _readable(self, within: float | None) -> bool:
        self._waiter = waiter = self._loop.create_future()
        self._loop.add_reader(self._fd, self._wake)
        try:
            async with asyncio.timeout(within):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiter = None
            if not self._file.closed:
                self._loop.remove_reader(self._fd)
        return True

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Writer:
    """What a process reads. A process that takes none of it, or ended, is no error."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._fd = file.fileno()
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._ending = False
        self._watching = False
        os.set_blocking(self._fd, False)

    def write(self, data: bytes) -> None:
        """Have the process read this after everything before it."""
        if not self._file.closed:
            self._waiting += data
            self._flush()

    def end(self) -> None:
        """Let the process read the end once it has read everything."""
        self._ending = True
        if not self._file.closed:
            self._flush()

    def close(self) -> None:
        """Close our end; what was not taken is dropped."""
        if not self._file.closed:
            self._unwatch()
            with suppress(OSError):
                self._file.close()
        self._waiting.clear()

    def _flush(self) -> None:
        try:
            while self._waiting:
                del self._waiting[: os.write(self._fd, self._waiting[:CHUNK])]
        except BlockingIOError:
            if not self._watching:
                self._watching = True
                self._loop.add_writer(self._fd, self._flush)
            return
        except OSError:  # it closed its end, or is gone
            self.close()
            return
        self._unwatch()
        if self._ending:
            self.close()

    def _unwatch(self) -> None:
        if self._watching:
            self._watching = False
            self._loop.remove_writer(self._fd)
