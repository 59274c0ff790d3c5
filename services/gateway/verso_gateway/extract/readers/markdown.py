"""Markdown: it is text already, so every byte of it is the document's."""

from __future__ import annotations

import re

from verso_core.errors import FileUnreadable, FileWithoutText
from verso_gateway.extract.content import Content
from verso_gateway.extract.formats import Format

_FENCE = re.compile(r" {0,3}(?:```|~~~)")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(?P<title>.+?)(?:[ \t]+#+)?[ \t]*")
_UNDERLINED = re.compile(r" {0,3}(?:=+|-+)[ \t]*")


def read(data: bytes, format: Format) -> Content:  # noqa: A002 - what it is
    """Return the text as it is.

    Raises:
        FileUnreadable: it is not UTF-8.
        FileWithoutText: it is empty.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise FileUnreadable(f"expected UTF-8, got byte {data[exc.start]:#04x}") from exc
    if not text.strip():
        raise FileWithoutText("expected text, got an empty file")
    return Content(format, (text,), title=_title(text))


def _title(text: str) -> str:
    """Return the first heading (CommonMark, sections 4.2 and 4.3), or nothing."""
    fenced, before = False, ""
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            if (found := _HEADING.fullmatch(line)) is not None:
                return found["title"]
            if before.strip() and before.strip() != "---" and _UNDERLINED.fullmatch(line):
                return before.strip()
        before = line
    return ""
