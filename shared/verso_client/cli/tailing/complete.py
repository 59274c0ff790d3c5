"""A file of lines that is complete, read part by part from any place."""

from __future__ import annotations

import os

from verso_client.cli.tailing.identity import identity
from verso_client.cli.tailing.joining import RECORD_BYTES, Joining
from verso_client.operations.lines import BODY_BYTES, SourceLines


class CompleteFile:
    """The lines of an open file as parts of a source, which ``verso tail`` names likewise.

    A file that is shorter than what was accepted of it was truncated and begins again, as another
    source.

    Args:
        descriptor: of the open file.
        host: what stands for this host in the source's name.
        joining: joins lines to records; None where each line is one.
        size: about so many bytes are a part.
    """

    def __init__(
        self, descriptor: int, *, host: str, joining: Joining | None, size: int = BODY_BYTES
    ) -> None:
        self._descriptor = descriptor
        self._joining = joining
        self._size = size
        self._name = f"{host}:{identity(os.fstat(descriptor), descriptor)}"
        self._generation = 0

    def read(self, begin: int) -> SourceLines | None:
        """Return the part that begins at a place; None at the file's end."""
        size = os.fstat(self._descriptor).st_size
        if begin > size:
            self._generation += 1
            begin = 0
        data = self._lines(begin, size)
        if not data:
            return None
        if self._joining is None:
            return SourceLines(self._source, begin, begin + len(data), data)
        if begin + len(data) < size:
            data = data[: self._joining.last_begin(data)] or data
        data = self._joining.first(data)
        rows = self._joining.rows(data)
        return SourceLines(self._source, begin, begin + len(data), rows, records=True)

    @property
    def _source(self) -> str:
        return f"{self._name}:{self._generation}" if self._generation else self._name

    def _lines(self, begin: int, size: int) -> bytes:
        """Return whole lines from a place, and at the end of the file also one without its end."""
        most = self._size if self._joining is None else max(self._size, 2 * RECORD_BYTES)
        while True:
            data = os.pread(self._descriptor, most, begin)
            end = len(data) if begin + len(data) >= size else data.rfind(b"\n") + 1
            if end or not data:
                return data[:end]
            most *= 2
