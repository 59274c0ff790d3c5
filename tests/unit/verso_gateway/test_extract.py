"""Facts about the text of files: what is read, what is refused, and what a bad file costs."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.errors import (
    FileEncrypted,
    FileTooLarge,
    FileUnreadable,
    FileUnsupported,
    FileWithoutText,
    from_body,
)
from verso_gateway.extract.child import HEAD, Bounds
from verso_gateway.extract.content import Content, cleaned, loaded
from verso_gateway.extract.formats import ANY, Format, family_of, format_of

FILES = Path(__file__).parents[2] / "data" / "files"
BOUNDS = Bounds(seconds=20.0, memory_bytes=1 << 30)
SMALL = Bounds(seconds=3.0, memory_bytes=256 << 20)
TEXT = {".eml", ".html", ".md"}
STATION = "Anna Berg answers for the station."
SAID = {
    "handbook.pdf": ("Handbook of the pump station", 3, [(2, "new oil after 600"), (3, STATION)]),
    "letter.pdf": ("Offer for a new seal", 1, [(1, "• fits P1 as well"), (1, "Käthe Ōno")]),
    "letter.docx": ("Offer for a new seal", None, [(1, "\nfits P1 as well\nSeal\t184\n")]),
    "letter.odt": ("Offer for a new seal", None, [(1, "\nfits P1 as well\nSeal\t184\n")]),
    "talk.pptx": ("A third pump", 3, [(2, "41,000 euros"), (3, "October 2027")]),
    "talk.odp": ("A third pump", 3, [(2, "41,000 euros"), (3, "October 2027")]),
    "costs.xlsx": (None, 1, [(1, "costs\nMonth\tPump"), (1, "2026-03\tP1\t240\t9310.25")]),
    "costs.ods": (None, 1, [(1, "costs\nMonth\tPump"), (1, "2026-03\tP1\t240\t9310.25")]),
    "order.eml": ("Order: screws for the cover of P2 – très urgent", None, [(1, "forty screws")]),
    "page.html": ("Water levels explained", None, [(1, "An alarm is raised at 3.40 metres")]),
    "notes.md": ("Notes of the inspection", None, [(1, "*order M8 × 20*")]),
}


@cache
def process(bounds: Bounds) -> subprocess.Popen[bytes]:
    """Start a process that reads files, as a gateway does; it ends with this one."""
    arguments = (str(bounds.seconds), str(bounds.memory_bytes))
    return subprocess.Popen(
        [sys.executable, "-m", "verso_gateway.extract", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


@pytest.fixture(scope="module", autouse=True)
def _ended() -> Iterator[None]:
    yield
    for bounds in (BOUNDS, SMALL):
        with process(bounds) as running:
            assert running.poll() is None
            running.communicate(b"", timeout=60)
            assert running.returncode == 0
    process.cache_clear()


def read(data: bytes, *, name: str = "", media_type: str = ANY, bounds: Bounds = BOUNDS) -> Content:
    """Have a file read by such a process."""
    running = process(bounds)
    assert running.stdin is not None
    assert running.stdout is not None
    header = json.dumps({"media_type": media_type, "name": name}).encode()
    running.stdin.write(HEAD.pack(len(header), len(data)) + header + data)
    running.stdin.flush()
    header_size, size = HEAD.unpack(running.stdout.read(HEAD.size))
    answer = json.loads(running.stdout.read(header_size))
    body = running.stdout.read(size)
    if "error" in answer:
        raise from_body(answer["error"])
    return loaded(body)


def archive(parts: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as target:
        for name, data in parts.items():
            target.writestr(name, data)
    return packed.getvalue()


def changed(name: str, part: str, data: bytes) -> bytes:
    """Return an office file with another part."""
    with zipfile.ZipFile(FILES / name) as source:
        return archive({one: source.read(one) for one in source.namelist()} | {part: data})


def test_every_file_of_the_tests_is_read() -> None:
    assert {path.name for path in FILES.iterdir()} == {*SAID, "README.md"}


@pytest.mark.parametrize("name", SAID)
def test_real_files_give_their_text_title_and_pages(name: str) -> None:
    title, pages, said = SAID[name]
    content = read((FILES / name).read_bytes(), name=name)
    for page, phrase in said:
        assert phrase in content.parts[page - 1]
    metadata = content.metadata(source=name)
    assert (metadata.get("title"), metadata.get("pages")) == (title, pages)
    assert (metadata["source"], metadata["media_type"]) == (name, content.format)
    assert not {"\x00", "\ufeff", "\r"} & set(content.text)
    assert content.text.count("\f") == len(content.parts) - 1


def test_the_main_text_of_a_page_has_no_navigation_and_no_script() -> None:
    text = read((FILES / "page.html").read_bytes(), name="page.html").text
    assert not [word for word in ("About us", "Cookies", "changed", "color") if word in text]


def test_an_email_has_its_header_its_time_and_the_names_of_its_attachments() -> None:
    content = read((FILES / "order.eml").read_bytes())
    assert content.text.startswith("From: Anna Berg <anna@example.org>\nTo: Repairs")
    assert "\nAttachment: drawing.pdf\n" in content.text
    assert content.time == 1_777_965_164.0
    assert content.metadata(source="")["to"] == "Repairs <repairs@example.org>, bo@example.org"
    html = b"Subject: x\r\nContent-Type: text/html\r\n\r\n<p>only <b>HTML</b></p>"
    assert read(html).text == "Subject: x\n\nonly HTML"


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        (b"Content-Type: text/plain; charset=x-nobody-knows", "Grüße".encode(), "Grüße"),
        (b"Content-Type: text/plain; charset=us-ascii", "Grüße".encode(), "Grüße"),
        (b"Content-Type: text/plain; charset=utf-8", "Grüße “x”".encode("cp1252"), "Grüße “x”"),
        (b"Content-Type: text/html; charset=cp932", "<b>山</b>".encode("cp932"), "山"),
        (b"Content-Type: multipart/mixed", b"no part", "no part"),
        (b"To: <[", b"a text", "a text"),
        (b"Content-Type: text/plain; charset*", b"a text", "a text"),
    ],
)
def test_a_malformed_email_is_read_nevertheless(head: bytes, body: bytes, said: str) -> None:
    content = read(b"From: a b <\r\nSubject: x\r\n" + head + b"\r\n\r\n" + body, name="x.eml")
    assert content.text.endswith(f"Subject: x\n\n{said}")
    assert content.title == "x"


def test_markdown_stays_as_it_is() -> None:
    data = b"  two  spaces \r\n\r\n\r\n\r\n\ttab  \n"
    assert read(data, name="x.md").text.encode() == data


def test_bytes_say_the_format_before_name_and_media_type() -> None:
    pdf = (FILES / "handbook.pdf").read_bytes()
    assert read(pdf, name="x.html", media_type="text/html").format is Format.PDF
    assert read((FILES / "talk.odp").read_bytes(), media_type=Format.DOCX).format is Format.ODP
    assert read(b"<p>a word</p>", media_type="application/xhtml+xml").format is Format.HTML
    assert read(b"<!-- x --><!DOCTYPE html><p>a word</p>").format is Format.HTML
    with pytest.raises(FileUnreadable, match="got other bytes"):
        read(b"no pdf", name="x.pdf")
    with pytest.raises(FileUnsupported):
        read(b"\x89PNG\r\n\x1a\n", name="x.png")
    with pytest.raises(FileUnsupported, match="before 2007"):
        read(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), name="x.doc")
    with pytest.raises(FileUnsupported, match="archive of other files"):
        read(archive({"a.txt": b"x"}))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("notes.md", b"A PDF begins with %PDF-1.7."),
        ("notes.html", b"<html><p>A PDF begins with %PDF-1.7.</p></html>"),
        ("notes.eml", b"Subject: PDF\r\n\r\nA PDF begins with %PDF-1.7."),
    ],
)
def test_a_text_that_quotes_the_header_of_a_pdf_is_none(name: str, data: bytes) -> None:
    assert "%PDF-1.7" in read(data, name=name).text
    with pytest.raises(FileUnreadable):
        read(data, name="notes.pdf")  # whose header may stand behind other bytes


@given(data=st.binary(max_size=64), name=st.sampled_from(["", *SAID]), said=st.sampled_from(Format))
def test_the_reader_that_is_loaded_reads_the_format_that_is_found(
    data: bytes, name: str, said: Format
) -> None:
    family = family_of(data, media_type=said, name=name)
    try:
        found = format_of(data, media_type=said, name=name)
    except FileUnreadable:
        return
    one = {Format.PDF: "pdf", Format.HTML: "web", Format.MARKDOWN: "markdown", Format.EMAIL: "mail"}
    assert one.get(found, "office") == family


@pytest.mark.parametrize(
    "name", [name for name in SAID if name[-4:] not in {".eml", "html", "s.md"}]
)
def test_half_a_file_is_refused_and_nothing_else_is_harmed(name: str) -> None:
    data = (FILES / name).read_bytes()
    with pytest.raises(FileUnreadable):
        read(data[: len(data) // 2], name=name)


def test_what_needs_a_password_says_so() -> None:
    with zipfile.ZipFile(FILES / "letter.odt") as source:
        manifest = source.read("META-INF/manifest.xml")
    locked = manifest.replace(b"/>", b"><manifest:encryption-data/></manifest:file-entry>", 1)
    with pytest.raises(FileEncrypted):
        read(changed("letter.odt", "META-INF/manifest.xml", locked))
    wrapped = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le")
    with pytest.raises(FileEncrypted):
        read(wrapped, name="x.docx")
    with pytest.raises(FileEncrypted):
        read(encrypted_pdf())


def test_pictures_alone_are_no_text() -> None:
    with pytest.raises(FileWithoutText):
        read(pdf(b"0 0 1 rg 10 10 50 50 re f"))
    with pytest.raises(FileWithoutText):
        read(b"<!doctype html><html><body><script>x()</script></body></html>")
    with pytest.raises(FileWithoutText):
        read(b" \n", name="x.md")


def test_an_archive_that_inflates_to_too_much_is_not_opened() -> None:
    bomb = changed("letter.docx", "word/document.xml", b" " * (257 << 20))
    assert len(bomb) < 2 << 20
    with pytest.raises(FileTooLarge, match="inflate"):
        read(bomb)


def test_a_pdf_that_inflates_to_too_much_ends_its_process_alone() -> None:
    text = b"BT /F 9 Tf " + b"(a long line of text) Tj " * 4_000_000 + b"ET"
    began = time.monotonic()
    with pytest.raises(FileTooLarge):
        read(pdf(text), bounds=SMALL)
    assert time.monotonic() - began < 100.0
    assert read((FILES / "handbook.pdf").read_bytes(), bounds=SMALL).paged


def test_a_sheet_of_all_cells_is_not_laid_out() -> None:
    sheet = (
        b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
        b'<row r="1"><c r="A1"><v>1</v></c></row>'
        b'<row r="1048576"><c r="XFD1048576"><v>2</v></c></row></sheetData></worksheet>'
    )
    with pytest.raises(FileUnreadable):
        read(changed("costs.xlsx", "xl/worksheets/sheet1.xml", sheet))


def test_entities_do_not_multiply() -> None:
    laughs = b"".join(b'<!ENTITY l%d "%s">' % (n, b"&l%d;" % (n - 1) * 10) for n in range(1, 10))
    body = b'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY l0 "ha">' + laughs + b"]>"
    space = b'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    body += b"<w:document " + space + b"><w:body><w:p><w:r><w:t>&l9;</w:t></w:r></w:p></w:body>"
    with pytest.raises(FileUnreadable):
        read(changed("letter.docx", "word/document.xml", body + b"</w:document>"))


@given(
    parts=st.lists(st.text(max_size=30), min_size=1, max_size=5),
    title=st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
)
def test_content_is_the_same_on_the_other_side_of_a_pipe(parts: list[str], title: str) -> None:
    try:
        clean = cleaned(parts)
    except FileWithoutText:
        return
    content = Content(Format.PDF, clean, paged=True, title=title, time=1.5, facts={"to": "x"})
    assert loaded(content.dumped()) == content
    content.text.encode()
    assert content.text.split("\n\f") == list(clean)
    metadata = content.metadata(source=title)
    assert all(len(str(value).encode()) <= 256 for value in metadata.values())
    assert cleaned(clean) == clean


def pdf(stream: bytes, *, more: bytes = b"", trailer: bytes = b"") -> bytes:
    """Return a PDF of one page that a stream draws."""
    packed = zlib.compress(stream, 9)
    fonts = b"/Resources<</Font<</F 5 0 R>>>>"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R%s>>" % fonts,
        b"<</Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (len(packed), packed),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        *([more] if more else []),
    ]
    data, places = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj%s endobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(places) + 1
    found = b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, table)
    end = b"trailer<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF"
    return data + found + end % (size, trailer, len(data))


def encrypted_pdf() -> bytes:
    """Return a PDF whose key no empty password gives (ISO 32000-1, 7.6.3)."""
    key = b"<</Filter/Standard/V 1/R 2/P -4/O<%s>/U<%s>>>" % (b"ab" * 32, b"cd" * 32)
    name = b"<%s>" % (b"12" * 16)
    return pdf(b"", more=key, trailer=b"/Encrypt 6 0 R/ID[%s%s]" % (name, name))
