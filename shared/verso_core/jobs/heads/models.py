"""What several jobs that ask heads share."""

from __future__ import annotations

from verso_core.jobs.models import OpenModel
from verso_core.registry import Channel
from verso_core.texts import utf16_units

MAX_PAIRS = 2048


class HeadResult(OpenModel):
    """Which version of a head executed a job."""

    head: str
    version: str
    channel: Channel = Channel.STABLE


class TextSpan(OpenModel):
    """A part of a text: in bytes and, where the text is UTF-8, in code points and UTF-16 units.

    Python counts a string in code points, JavaScript and Java in code units of UTF-16.
    """

    start: int | None = None
    end: int | None = None
    start_byte: int
    end_byte: int
    start_utf16: int | None = None
    end_utf16: int | None = None

    @classmethod
    def of(cls, text: bytes, start: int, end: int) -> TextSpan:
        """Return bytes [start, end) of a text as a span."""
        try:
            text.decode()
            before, part = text[:start].decode(), text[start:end].decode()
        except UnicodeDecodeError:
            return cls(start_byte=start, end_byte=end)
        first = utf16_units(before)
        return cls(
            start=len(before),
            end=len(before) + len(part),
            start_byte=start,
            end_byte=end,
            start_utf16=first,
            end_utf16=first + utf16_units(part),
        )
