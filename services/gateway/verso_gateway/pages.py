"""A page of a job's results as JSON, slice by slice where they lie in files.

A page may hold a thousand slices of vectors. Those that the ledger gave are in memory already;
those in files are read, rendered and sent one at a time. All of them are read once before the first
byte is sent: a result that is gone is an error of its own, and no answer that breaks off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import orjson

from verso_core.jobs import Kind, Result
from verso_core.result_files import ResultFiles, is_reference
from verso_gateway import views


class Page:
    """The results of slices that follow each other.

    Args:
        files: where large ones are.
        job_id: the job.
        kind: of the job.
        first: number of the first slice.
        held: what the ledger holds of each slice's result.
    """

    def __init__(
        self, files: ResultFiles, job_id: str, *, kind: Kind, first: int, held: Sequence[bytes]
    ) -> None:
        self._files = files
        self._job_id = job_id
        self._kind = kind
        self._rows = list(enumerate(held, first))

    async def check(self) -> None:
        """Read every file once.

        Raises:
            ResultLost: one is gone or damaged.
            ResultsUnavailable: the folder cannot be read.
        """
        for number, held in self._rows:
            if is_reference(held):
                await self._read(number, held)

    async def json(
        self, head: Mapping[str, Any], *, vectors_base64: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield one JSON object in parts: ``head`` and the page's items as ``results``."""
        yield orjson.dumps(dict(head))[:-1] + b',"results":['
        comma = b""
        for number, held in self._rows:
            frame = await self._read(number, held) if is_reference(held) else held
            result = Result.unpack(self._kind, frame)
            items = views.rendered([result], vectors_base64=vectors_base64)
            if items:
                yield comma + orjson.dumps(items)[1:-1]
                comma = b","
        yield b"]}"

    async def _read(self, number: int, held: bytes) -> bytes:
        return await asyncio.to_thread(self._files.read, self._job_id, number, held)
