"""A source of lines that is read from a place to another, as a file is, each line once.

A sender names its source, and says where in it a request begins and ends. The step that accepts the
lines moves the source from the one place to the other, and refuses them if it stands elsewhere: a
request that is sent again after its answer was lost is refused, with the place to go on from.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

from verso_core.errors import RequestInvalid
from verso_ledger.models import Moved

_HASH_BYTES = 16
_MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A part of a source: its name, and where the part begins and ends."""

    name: str
    begin: int
    end: int

    def moved(self, tenant: str, uid: str) -> Moved:
        """Return what the ledger does with it; sources of tenants and collections are apart."""
        return Moved(uid, self.hashed(tenant), self.begin, self.end)

    def hashed(self, tenant: str) -> bytes:
        """Return the hash that the ledger knows the source by, 16 bytes."""
        name = f"{tenant}\0{self.name}".encode()
        return hashlib.blake2b(name, digest_size=_HASH_BYTES).digest()


def source_part(
    source: Annotated[
        str | None,
        Query(
            max_length=256,
            description="of lines and records: names what they are a part of, such as a file, so "
            "that each is accepted once; the next three belong together",
        ),
    ] = None,
    source_begin: Annotated[
        int, Query(ge=0, le=_MOST, description="where in the source they begin")
    ] = 0,
    source_end: Annotated[
        int, Query(ge=0, le=_MOST, description="where in the source they end")
    ] = 0,
) -> SourcePart | None:
    """Return the part of a source that a request is, if it names one.

    Raises:
        RequestInvalid: it has no name, or ends before it begins.
    """
    if source is None:
        return None
    if not source or source_end < source_begin:
        raise RequestInvalid("expected a source with a name, and source_begin <= source_end")
    return SourcePart(source, source_begin, source_end)
