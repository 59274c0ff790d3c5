"""HTML: the main text of a page, without navigation and what surrounds it."""

from __future__ import annotations

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import detect_encoding
from resiliparse.parse.html import HTMLTree

from verso_gateway.extract.content import Content, cleaned
from verso_gateway.extract.formats import Format

_LOOKED_AT_BYTES = 1 << 16


def read(data: bytes, format: Format) -> Content:  # noqa: A002 - what it is
    """Return the text of a page.

    Raises:
        FileWithoutText: it has none, as one that a script fills.
    """
    tree = HTMLTree.parse_from_bytes(data, _encoding(data))
    text = extract_plain_text(tree, main_content=True)
    if not text.strip():
        text = extract_plain_text(tree)
    return Content(format, cleaned([text]), title=tree.title or "")


def text_of(html: str) -> str:
    """Return all the text of HTML within something else."""
    return extract_plain_text(HTMLTree.parse(html))


def _encoding(data: bytes) -> str:
    """Return a page's encoding: UTF-8 where its bytes are that, whatever it says."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return detect_encoding(data[:_LOOKED_AT_BYTES], from_html_meta=True) or "utf-8"
    return "utf-8"
