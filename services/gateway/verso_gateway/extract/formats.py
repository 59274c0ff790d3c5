"""Formats of files: by their first bytes, then by media type, then by name.

The bytes of PDF, of ZIP archives and of office files from before 2007 say for certain what they
are. HTML, e-mail and plain text are told apart by what the sender says, and by how they begin only
if the sender says nothing.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import PurePath

from verso_core.errors import FileEncrypted, FileTooLarge, FileUnreadable, FileUnsupported


class Format(StrEnum):
    """A kind of file that text can be read from; the values are media types."""

    PDF = "application/pdf"
    HTML = "text/html"
    MARKDOWN = "text/markdown"
    EMAIL = "message/rfc822"
    DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
    XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    ODT = "application/vnd.oasis.opendocument.text"
    ODP = "application/vnd.oasis.opendocument.presentation"
    ODS = "application/vnd.oasis.opendocument.spreadsheet"


class Family(StrEnum):
    """Formats with one reader; the values are its modules in ``readers``."""

    PDF = "pdf"
    WEB = "web"
    MARKDOWN = "markdown"
    MAIL = "mail"
    OFFICE = "office"


ANY = "application/octet-stream"
"""Media type of a file whose format is to be found."""
MEDIA_TYPES = frozenset({*Format, "application/xhtml+xml", "text/x-markdown", ANY})
"""Media types of bodies that are files."""
TAKEN = "PDF, HTML, Markdown, docx, pptx, xlsx, odt, odp, ods or e-mail"
INFLATED_BYTES = 256 * 1024 * 1024
"""Most that the parts of a ZIP archive may inflate to, all together."""
MOST_PARTS = 10_000
_NAMES = {
    **{f".{one.name.lower()}": one for one in Format},
    ".htm": Format.HTML,
    ".xhtml": Format.HTML,
    ".md": Format.MARKDOWN,
    ".markdown": Format.MARKDOWN,
    ".eml": Format.EMAIL,
}
_ALIASES = {"application/xhtml+xml": Format.HTML, "text/x-markdown": Format.MARKDOWN}
_OFFICE = {"word/": Format.DOCX, "ppt/": Format.PPTX, "xl/": Format.XLSX}
_OPEN = (Format.ODT, Format.ODP, Format.ODS)
_TEXTS = (Format.HTML, Format.MARKDOWN, Format.EMAIL)
_PDF = b"%PDF-"
_PDF_WITHIN = 1024
"""Readers accept bytes before the header, up to here (ISO 32000-1, annex H.3, note 13)."""
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.{,4096}?-->\s*)?"
    rb"<(?:!doctype html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
_EMAIL = re.compile(
    rb"(?:From |(?:Return-Path|Received|Delivered-To|Message-ID|MIME-Version|From|To|Subject|Date)"
    rb"[ \t]*:)",
    re.IGNORECASE,
)
_ZIP = b"PK\x03\x04"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
"""Stream of an encrypted office document (MS-OFFCRYPTO, section 2.3.4.4)."""


def format_of(data: bytes, *, media_type: str, name: str) -> Format:
    """Return the format of a file.

    Args:
        data: its bytes.
        media_type: what the sender says, lower case; ``ANY`` or empty where it does not.
        name: its name, or empty.

    Raises:
        FileEncrypted: it is an encrypted office document.
        FileUnreadable: it is a broken archive, or not what it is said to be.
        FileUnsupported: it is in no format that text is read from.
        FileTooLarge: it is an archive that inflates to too much.
    """
    said = _said(media_type, name)
    if _is_pdf(data, said):
        return Format.PDF
    if data.startswith(_ZIP):
        return _archived(data)
    if data.startswith(_OLE):
        if _ENCRYPTED in data:
            raise FileEncrypted("expected a file without a password, got an encrypted one")
        raise FileUnsupported(f"expected {TAKEN}, got an office file of before 2007")
    if said not in (None, *_TEXTS):
        raise FileUnreadable(f"expected {said}, got other bytes")
    if said is not None:
        return said
    if _HTML.match(data):
        return Format.HTML
    if _EMAIL.match(data):
        return Format.EMAIL
    raise FileUnsupported(f"expected {TAKEN}, got another file")


def family_of(data: bytes, *, media_type: str, name: str) -> Family:
    """Return whose reader a file needs if it is in a format at all, by a look at its beginning."""
    said = _said(media_type, name)
    if _is_pdf(data, said):
        return Family.PDF
    if data.startswith(_ZIP):
        return Family.OFFICE
    if said is Format.MARKDOWN:
        return Family.MARKDOWN
    is_mail = said is Format.EMAIL or (said is None and _EMAIL.match(data))
    return Family.MAIL if is_mail else Family.WEB


def _is_pdf(data: bytes, said: Format | None) -> bool:
    """Whether a file has a PDF's header; in what is said to be text it must be at the very start.

    A page about PDF may quote one.
    """
    return data.startswith(_PDF) or (said not in _TEXTS and _PDF in data[:_PDF_WITHIN])


def _said(media_type: str, name: str) -> Format | None:
    """Return the format that the sender names: by its media type, else by the file's name."""
    if media_type in _ALIASES:
        return _ALIASES[media_type]
    if media_type in frozenset(Format):
        return Format(media_type)
    return _NAMES.get(PurePath(name).suffix.lower())


def _archived(data: bytes) -> Format:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = archive.infolist()
            _check_size(parts)
            return _kind(archive, {part.filename for part in parts})
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, ValueError) as exc:
        raise FileUnreadable("expected an archive of office parts, got a broken one") from exc


def _check_size(parts: Sequence[zipfile.ZipInfo]) -> None:
    """Check what an archive says that its parts inflate to; reading stops at what it says."""
    size = sum(part.file_size for part in parts)
    if size > INFLATED_BYTES or len(parts) > MOST_PARTS:
        raise FileTooLarge(
            f"expected <= {MOST_PARTS} parts that inflate to <= {INFLATED_BYTES} bytes, "
            f"got {len(parts)} of {size}"
        )


def _kind(archive: zipfile.ZipFile, names: set[str]) -> Format:
    if "[Content_Types].xml" in names:
        for folder, kind in _OFFICE.items():
            if any(name.startswith(folder) for name in names):
                return kind
    if "mimetype" in names:
        with archive.open("mimetype") as part:
            said = part.read(100).decode("ascii", "replace").strip()
        # a template has the name of what it makes, and "-template"
        for one in _OPEN:
            if said in (one, f"{one}-template"):
                return one
    raise FileUnsupported(f"expected {TAKEN}, got an archive of other files")
