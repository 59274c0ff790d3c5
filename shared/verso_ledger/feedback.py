"""Labels that people have checked: what the calibration of a head learns from.

A text is counted once, with the label that was given last. The newest ``MOST`` of a version are
kept.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from typing import Any, cast

from verso_core.heads import Judged
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.scripts import Scripts

MOST = 2000
_ROW = struct.Struct("<df?")
"""Unix time, the signal's value, whether the label was right; the source follows, UTF-8."""


class Feedback:
    """The feedback on the labels of each version of a head."""

    def __init__(self, scripts: Scripts) -> None:
        self._redis = scripts.client
        self._replicas = scripts.replicas

    def add(self, head: str, version: str, rows: Mapping[bytes, Judged]) -> None:
        """Store rows by the hash of what was labelled; of too many the oldest are removed."""
        name, now = key("feedback", head, version), time.time()
        packed = {
            digest: _ROW.pack(now, one.value, one.right) + one.source.encode()
            for digest, one in rows.items()
        }
        with translated():
            with self._redis.pipeline(transaction=False) as pipe:
                pipe.hset(name, mapping=cast("dict[Any, Any]", packed))
                self._replicas.ask(pipe)
                self._replicas.check(pipe.execute())
            if self._redis.hlen(name) > MOST:
                stored = cast("dict[bytes, bytes]", self._redis.hgetall(name))
                oldest = sorted(stored, key=lambda digest: _ROW.unpack_from(stored[digest])[0])
                self._redis.hdel(name, *oldest[: len(stored) - MOST])

    def rows(self, head: str, version: str) -> list[Judged]:
        """Return the rows of a version, oldest first."""
        with translated():
            stored = cast("list[bytes]", self._redis.hvals(key("feedback", head, version)))
        found = sorted((*_ROW.unpack_from(row), row[_ROW.size :].decode()) for row in stored)
        return [Judged(source, value, right) for _, value, right, source in found]
