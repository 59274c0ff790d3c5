"""Office files: Office Open XML (ECMA-376) and OpenDocument (ISO 26300).

Paragraphs are lines. A row of a table is a line with tabs between its cells, as a spreadsheet
copies it. Slides and sheets are parts of their own; a sheet begins with its name.
"""

from __future__ import annotations

import datetime as dt
import io
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any

import docx
import odfdo
import pptx
import python_calamine
from docx.oxml.ns import qn

from verso_core.errors import FileEncrypted
from verso_gateway.extract.content import Content, cleaned
from verso_gateway.extract.formats import Format

_P, _TR, _TC = qn("w:p"), qn("w:tr"), qn("w:tc")
_WRITTEN = {qn("w:tab"): "\t", qn("w:br"): "\n", qn("w:cr"): "\n", qn("w:noBreakHyphen"): "-"}
_T = qn("w:t")
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
"""Holds a copy of what stands before it, for older programs."""
_LEFT_OUT = frozenset({_FALLBACK, qn("w:del"), qn("w:moveFrom"), qn("w:pPr")})
_ENCRYPTED = b"manifest:encryption-data"
_ODF_LINES = (
    ".//text:p[not(ancestor::table:table-cell or ancestor::text:tracked-changes"
    " or ancestor::office:annotation)]"
    " | .//text:h[not(ancestor::table:table-cell or ancestor::text:tracked-changes)]"
    " | .//table:table-row[not(ancestor::table:table-cell)]"
)


def read(data: bytes, format: Format) -> Content:  # noqa: A002 - what it is
    """Return the text of an office file.

    Raises:
        FileEncrypted: it needs a password.
        FileWithoutText: it has none.
    """
    if format in (Format.ODT, Format.ODP, Format.ODS):
        _check_readable(data)
    stream = io.BytesIO(data)
    match format:
        case Format.DOCX:
            document = docx.Document(stream)
            text = "\n".join(_lines(document.element.body))
            return Content(format, cleaned([text]), title=document.core_properties.title)
        case Format.PPTX:
            shown = pptx.Presentation(stream)
            slides = cleaned(["\n".join(_slide(slide)) for slide in shown.slides])
            return Content(format, slides, paged=True, title=shown.core_properties.title)
        case Format.XLSX | Format.ODS:
            book = python_calamine.CalamineWorkbook.from_filelike(stream)
            sheets = cleaned(["\n".join(_sheet(book, name)) for name in book.sheet_names])
            return Content(format, sheets, paged=True)
    open_document = odfdo.Document(stream)
    title = open_document.meta.title or ""
    if format is Format.ODT:
        return Content(format, cleaned([_odf(open_document.body)]), title=title)
    pages = cleaned([_odf(page) for page in open_document.body.get_draw_pages()])
    return Content(format, pages, paged=True, title=title)


def _check_readable(data: bytes) -> None:
    """Check that an OpenDocument is not encrypted (ISO 26300, part 2, section 3.4)."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if _ENCRYPTED in archive.read("META-INF/manifest.xml"):
            raise FileEncrypted("expected a file without a password, got an encrypted one")


def _lines(body: Any) -> Iterator[str]:
    """Yield paragraphs and rows of a docx in order, those of text boxes and controls too."""
    for element in body.iter(_P, _TR):
        above = {parent.tag for parent in element.iterancestors()}
        if above & _LEFT_OUT or _TC in above:  # a table within a cell is a part of its text
            continue
        if element.tag == _P:
            yield "".join(_written(element))
        else:
            yield "\t".join(_cell(cell) for cell in element.iter(_TC) if not _inner(cell, element))


def _inner(cell: Any, row: Any) -> bool:
    """Whether a cell is of a table within the row."""
    return next(cell.iterancestors(_TR)) is not row


def _cell(cell: Any) -> str:
    return " ".join(line for p in cell.iter(_P) if (line := "".join(_written(p)).strip()))


def _written(element: Any) -> Iterator[str]:
    """Yield what is written in a paragraph, without paragraphs within it and what was deleted."""
    for child in element:
        if child.tag == _T:
            yield child.text or ""
        elif child.tag in _WRITTEN:
            yield _WRITTEN[child.tag]
        elif child.tag != _P and child.tag not in _LEFT_OUT:
            yield from _written(child)


def _slide(slide: Any) -> Iterator[str]:
    yield from _shapes(slide.shapes)
    if slide.has_notes_slide:
        notes = slide.notes_slide.notes_text_frame
        yield "" if notes is None else notes.text


def _shapes(shapes: Iterable[Any]) -> Iterator[str]:
    for shape in shapes:
        if hasattr(shape, "shapes"):  # a group
            yield from _shapes(shape.shapes)
        elif shape.has_text_frame:
            yield shape.text_frame.text.replace("\v", "\n")
        elif shape.has_table:
            yield from ("\t".join(cell.text for cell in row.cells) for row in shape.table.rows)


def _sheet(book: python_calamine.CalamineWorkbook, name: str) -> Iterator[str]:
    rows = ["\t".join(map(_value, row)) for row in book.get_sheet_by_name(name).iter_rows()]
    if any(row.strip() for row in rows):
        yield name
        yield from rows


def _value(value: object) -> str:
    """Return a cell's value as one line; a spreadsheet has no other numbers than floats."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")
    return " ".join(str(value).split())


def _odf(element: Any) -> str:
    """Return paragraphs, headings and rows of an element of OpenDocument in order."""
    return "\n".join(map(_odf_line, element.get_elements(_ODF_LINES)))


def _odf_line(element: Any) -> str:
    if element.tag != "table:table-row":
        return str(element.inner_text)
    cells = element.get_elements("table:table-cell")
    return "\t".join(" ".join(cell.inner_text.split()) for cell in cells)
