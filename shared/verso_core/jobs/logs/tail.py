"""The live tail: log lines as they are accepted, as server-sent events.

Events are ``line`` (:class:`TailLine`), ``gap`` (:class:`TailGap`) and ``position``, which has no
data but an id to go on from. An event's id is ``UID-NUMBER``: that of the collection's lines, and
the number of the last line before the next event among all that the collection ever accepted.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from pydantic import ConfigDict, Field

from verso_core.errors import RequestInvalid
from verso_core.jobs.filters.filter import Filter
from verso_core.jobs.logs.records import TimeFrom
from verso_core.jobs.models import Name, OpenModel, StrictModel

_ID = re.compile(r"(\d{1,19})-(\d{1,16})", re.ASCII)


class TailStart(StrEnum):
    """Where a tail begins."""

    NOW = "now"
    UNSTORED = "unstored"
    KEPT = "kept"


class GapReason(StrEnum):
    """Why lines are missing from a tail."""

    DROPPED = "dropped"
    UNKNOWN = "unknown"


class TailRequest(StrictModel):
    """Query of ``GET /v1/logs/tail``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    collection: Name = "default"
    filter: Filter | None = None
    contains: Annotated[str, Field(max_length=4096)] | None = None
    start: TailStart = TailStart.NOW


class TailLine(OpenModel):
    """A line that was accepted."""

    id: str = Field(description="stream:number", examples=["3:1042"])
    arrived: str = Field(description="when it was accepted, RFC 3339, UTC")
    time: str | None = Field(
        default=None, description="of a log record; that of a plain line is found later"
    )
    text: str | None = None
    text_base64: str | None = Field(default=None, description="of a line that is not UTF-8")
    labels: dict[str, str] = Field(default_factory=dict)
    time_from: TimeFrom | None = Field(
        default=None, description="of a log record whose time is not its sender's"
    )
    attributes: dict[str, Any] | None = Field(default=None, description="of a log record")


class TailGap(OpenModel):
    """Lines that were accepted and are missing from a tail.

    ``dropped``: the ledger keeps them no longer, as they were verified or too many came after them;
    they are stored, unless the filter would have left them out anyway. ``unknown``: the id to go on
    from is of another collection or another ledger.
    """

    lines: int | None = Field(description="how many; null if that is not known")
    reason: GapReason


class TailEvent(OpenModel):
    """An event of a tail as the client yields it: a line, a gap, or nothing but a place."""

    id: str
    line: TailLine | None = None
    gap: TailGap | None = None


class TailPlace(NamedTuple):
    """What the id of an event says: the uid of the lines, and the number of one."""

    uid: str
    number: int

    def __str__(self) -> str:
        return f"{self.uid}-{self.number}"

    @classmethod
    def read(cls, text: str) -> TailPlace:
        """Read the id of an event.

        Raises:
            RequestInvalid: it is none.
        """
        found = _ID.fullmatch(text)
        if found is None:
            raise RequestInvalid("expected the id of an event of a tail as Last-Event-ID")
        return cls(found[1], int(found[2]))
