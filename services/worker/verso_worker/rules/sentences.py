"""The sentences of a text, for heads that say how well one fits a question.

A text is cut behind a full stop, question or exclamation mark, and at the ends of lines. What is
not longer than ``SHORT_BYTES``, such as a number of a heading, says too little and is left out,
unless there is nothing else.
"""

from __future__ import annotations

import re

MOST = 64
"""Sentences of a text at most: a chunk has fewer, and a text of another length shall not cost more
than the longest chunk."""

SHORT_BYTES = 20

_LOOKED_AT_BYTES = 32_768
_END = re.compile(rb"(?<=[.!?])\s+|[\r\n]+")


def cut(text: bytes) -> list[bytes]:
    """Return a text's first sentences; the text itself, as far as it is looked at, if it has
    none.
    """
    looked_at = text[:_LOOKED_AT_BYTES]
    found = [part for part in _END.split(looked_at) if len(part) > SHORT_BYTES]
    return found[:MOST] or [looked_at]
