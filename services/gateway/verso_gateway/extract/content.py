"""What is read from a file, and its form between processes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from verso_core.errors import FileWithoutText
from verso_core.texts import PAGE_END
from verso_gateway.extract.formats import Format

_LONGEST_FACT = 256
_DROPPED = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff\ufeff]")
"""Control characters but tab, line feed and those that count as one; halves of surrogate pairs."""
_LINE_ENDS = re.compile("\r\n|\r|\f|\x85|\u2028|\u2029")
_SPACE_BEFORE_END = re.compile(r"[ \t\u00a0]+$", re.MULTILINE)
_EMPTY_LINES = re.compile(r"\n{3,}")


@dataclass(frozen=True, slots=True)
class Content:
    """The text of a file.

    Attributes:
        format: of the file.
        parts: its pages, slides or sheets in order, or all of its text as one.
        paged: whether ``parts`` are what people count: an empty one keeps its number.
        title: of the file itself, or empty.
        time: when it was written, Unix seconds, if the format says so for certain.
        facts: what else goes to metadata.
    """

    format: Format
    parts: tuple[str, ...]
    paged: bool = False
    title: str = ""
    time: float | None = None
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The whole text; pages are told apart by ``PAGE_END``, each behind a line feed."""
        return f"\n{PAGE_END.decode()}".join(self.parts)

    def metadata(self, *, source: str) -> dict[str, str | int]:
        """Return what metadata says of the file; keys without a value are left out.

        Args:
            source: name of the file, or empty.
        """
        given = {"source": source, "title": self.title, "media_type": self.format, **self.facts}
        found: dict[str, str | int] = {
            name: shortened for name, value in given.items() if (shortened := _fact(value))
        }
        return found | {"pages": len(self.parts)} if self.paged else found

    def dumped(self) -> bytes:
        """Return the content as bytes; :func:`loaded` reads them."""
        return json.dumps(
            {
                "format": self.format,
                "parts": self.parts,
                "paged": self.paged,
                "title": self.title,
                "time": self.time,
                "facts": dict(self.facts),
            },
            ensure_ascii=False,
        ).encode("utf-8", "replace")


def loaded(data: bytes) -> Content:
    """Return the content that :meth:`Content.dumped` wrote."""
    row = json.loads(data)
    return Content(
        format=Format(row["format"]),
        parts=tuple(row["parts"]),
        paged=row["paged"],
        title=row["title"],
        time=row["time"],
        facts=row["facts"],
    )


def cleaned(parts: Sequence[str]) -> tuple[str, ...]:
    """Return parts without what is no text: control characters, spaces before line ends.

    Raises:
        FileWithoutText: no part has a letter.
    """
    found = tuple(_cleaned(part) for part in parts)
    if not any(found):
        raise FileWithoutText("expected text, got a file without any, such as scanned pages")
    return found


def _cleaned(text: str) -> str:
    text = _DROPPED.sub("", _LINE_ENDS.sub("\n", text))
    return _EMPTY_LINES.sub("\n\n", _SPACE_BEFORE_END.sub("", text)).strip("\n")


def _fact(value: str) -> str:
    """Return a text as a value of metadata: one line, not longer than ``_LONGEST_FACT`` bytes."""
    line = " ".join(_DROPPED.sub("", value).split())
    return line.encode()[:_LONGEST_FACT].decode("utf-8", "ignore").strip()
