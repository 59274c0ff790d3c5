"""PDF, by PDFium: the text of each page, in the order in which the page has it."""

from __future__ import annotations

import re

import pypdfium2
import pypdfium2.raw

from verso_core.errors import FileEncrypted, FileUnreadable
from verso_gateway.extract.content import Content, cleaned
from verso_gateway.extract.formats import Format

_HYPHEN = re.compile("[\x02\ufffe](?:\r?\n)?")
"""What PDFium makes of a hyphen that ends a line within a word, and of the line's end."""


def read(data: bytes, format: Format) -> Content:  # noqa: A002 - what it is
    """Return the pages of a PDF.

    Raises:
        FileEncrypted: it needs a password.
        FileUnreadable: it is broken.
        FileWithoutText: its pages are pictures.
    """
    try:
        document = pypdfium2.PdfDocument(data)
        pages = [_text(document[number]) for number in range(len(document))]
    except pypdfium2.PdfiumError as exc:
        if exc.err_code == pypdfium2.raw.FPDF_ERR_PASSWORD:
            raise FileEncrypted("expected a PDF without a password, got an encrypted one") from exc
        raise FileUnreadable("expected a whole PDF, got a broken one") from exc
    title = document.get_metadata_value("Title")
    return Content(format, cleaned(pages), paged=True, title=title)


def _text(page: pypdfium2.PdfPage) -> str:
    text: str = page.get_textpage().get_text_bounded()
    return _HYPHEN.sub("", text)
