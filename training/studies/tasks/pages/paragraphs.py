"""Paragraphs of a page."""

from __future__ import annotations

import textwrap


def wrapped(text: str) -> str:
    """Return a paragraph as wide as those of the other pages."""
    return textwrap.fill(text, 105, break_long_words=False, break_on_hyphens=False)
