"""The gateway's processes that read files: started when a file comes, ended when none does.

1. A caller waits for one of ``processes`` places, at most as long as one file may take.
2. It takes an idle process, or starts one, and sends the file. If an idle one has ended, or ends,
   the file is sent to the next one.
3. An answer comes within the bounds of one file, which the process keeps by itself. A process that
   does not answer is killed.
4. A process that had nothing to do for ``idle_s`` is ended, and its memory is free again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from verso_core.errors import FileTooLarge, FileUnreadable, NotInstalled, QueueFull, from_body
from verso_gateway.extract.child import HEAD, Bounds
from verso_gateway.extract.content import Content, loaded
from verso_gateway.metrics import READ, FileMetrics

_START_S = 20.0
"""Longest start of a process, libraries included, on a busy machine."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that came.

    Attributes:
        data: its bytes.
        media_type: what its sender says, lower case.
        name: its name, or empty.
    """

    data: bytes
    media_type: str
    name: str


class Extractors:
    """Reads files in processes of their own.

    Args:
        processes: files read at once.
        bounds: what reading one file may take.
        metrics: counts files.
        idle_s: a process that had nothing to do for so long is ended.
    """

    def __init__(
        self, *, processes: int, bounds: Bounds, metrics: FileMetrics, idle_s: float = 30.0
    ) -> None:
        self._bounds = bounds
        self._metrics = metrics
        self._idle_s = idle_s
        self._places = asyncio.Semaphore(processes)
        self._idle: list[_Process] = []

    async def read(self, file: File) -> Content:
        """Return the text of a file.

        Raises:
            FileUnreadable: it, or a class below, says why there is none.
            NotInstalled: the libraries that read it are missing.
            QueueFull: too many files came at once.
        """
        async with self._place():
            started = time.monotonic()
            try:
                content = await self._read(file)
            except (FileUnreadable, NotInstalled) as fault:
                self._metrics.read(fault.code, seconds=time.monotonic() - started)
                raise
            self._metrics.read(READ, seconds=time.monotonic() - started)
            return content

    async def _read(self, file: File) -> Content:
        while self._idle:
            process = self._idle.pop()
            process.keep()
            try:
                return await self._exchanged(process, file)
            except _Ended:
                continue  # while it was idle, or of this file: a new one tells
        try:
            return await self._exchanged(await _Process.started(self._bounds), file)
        except _Ended as exc:
            raise FileTooLarge(
                "expected a file that its reader survives, within memory and time"
            ) from exc

    async def _exchanged(self, process: _Process, file: File) -> Content:
        try:
            async with asyncio.timeout(self._bounds.seconds + _START_S):
                header, body = await process.exchange(file)
        except (TimeoutError, asyncio.IncompleteReadError, OSError) as exc:
            await process.end()
            raise _Ended from exc
        except BaseException:  # a caller that has gone: what comes is not the next one's
            await process.end()
            raise
        self._rest(process)
        if "error" in header:
            raise from_body(header["error"])
        return await asyncio.to_thread(loaded, body)

    async def close(self) -> None:
        """End all processes that have nothing to do."""
        while self._idle:
            await self._idle.pop().end()

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._bounds.seconds):
                await self._places.acquire()
        except TimeoutError as exc:
            raise QueueFull("too many files are read at once", retry_after_s=5.0) from exc
        try:
            yield
        finally:
            self._places.release()

    def _rest(self, process: _Process) -> None:
        self._idle.append(process)
        process.end_in(self._idle_s, self._idle)


class _Ended(Exception):
    """A process ended, or was ended, instead of an answer."""


class _Process:
    """One ``python -m verso_gateway.extract``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ending: asyncio.TimerHandle | None = None

    @classmethod
    async def started(cls, bounds: Bounds) -> _Process:
        """Start one."""
        arguments = (bounds.seconds, bounds.memory_bytes)
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "verso_gateway.extract", *map(str, arguments)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        )

    async def exchange(self, file: File) -> tuple[dict[str, Any], bytes]:
        """Send a file; return the header and the body of the answer.

        Raises:
            asyncio.IncompleteReadError, OSError: the process has ended.
        """
        source, target = self._process.stdout, self._process.stdin
        assert source is not None
        assert target is not None
        header = json.dumps({"media_type": file.media_type, "name": file.name}).encode("ascii")
        target.write(HEAD.pack(len(header), len(file.data)) + header)
        target.write(file.data)
        await target.drain()
        header_size, size = HEAD.unpack(await source.readexactly(HEAD.size))
        return json.loads(await source.readexactly(header_size)), await source.readexactly(size)

    def end_in(self, seconds: float, idle: list[_Process]) -> None:
        """End it after a while, unless :meth:`keep` is called before."""

        def end() -> None:
            idle.remove(self)
            self.kill()

        self._ending = asyncio.get_running_loop().call_later(seconds, end)

    def keep(self) -> None:
        """Do not end it for now."""
        if self._ending is not None:
            self._ending.cancel()

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """End it, and return when it has and its pipes are closed."""
        self.keep()
        self.kill()
        await self._process.communicate()
