"""Files become documents, byte for byte."""

from __future__ import annotations

import io

import pytest

from verso_client.cli.sources import Format, guess_format, read
from verso_client.operations.documents import Document
from verso_core.errors import RequestInvalid


def documents(data: bytes, how: Format, name: str = "f") -> list[Document]:
    return list(read(io.BytesIO(data), name, how=how, metadata={"host": "a"}))


def test_lines_keep_every_byte_but_the_line_feed() -> None:
    found = documents(b"one\r\n\n\xff\xfe two\nlast", Format.LINES)
    assert [(d.id, d.text) for d in found] == [
        ("f:1", b"one\r"),
        ("f:3", b"\xff\xfe two"),
        ("f:4", b"last"),
    ]


def test_a_whole_file_is_one_document() -> None:
    [document] = documents(b"one\r\n\x00two\n", Format.FILES)
    assert document.text == b"one\r\n\x00two\n"
    assert document.metadata == {"host": "a"}


def test_json_lines_bring_their_own_fields() -> None:
    [first, second] = documents(
        b'{"text": "a", "id": "x", "metadata": {"host": "b"}, "time": 3}\n\n'
        b'{"text_base64": "/w=="}\n',
        Format.JSONL,
    )
    assert (first.text, first.id, first.metadata, first.time) == ("a", "x", {"host": "b"}, 3)
    assert (second.text, second.id, second.metadata) == (b"\xff", None, {"host": "a"})


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]", b'{"txt": "a"}', b'{"text": 3}', b'{"text": "a", "text_base64": "/w=="}',
     b'{"text_base64": "?"}', b'{"text": "a", "metadata": []}'],
)  # fmt: skip
def test_a_line_that_is_no_document_names_its_place(line: bytes) -> None:
    with pytest.raises(RequestInvalid, match=r"^f:1: "):
        documents(line, Format.JSONL)


@pytest.mark.parametrize(
    ("name", "how"),
    [("-", Format.LINES), ("a.log", Format.LINES), ("a.JSONL", Format.JSONL),
     ("a.ndjson", Format.JSONL), ("a.md", Format.FILES), ("README", Format.FILES)],
)  # fmt: skip
def test_the_format_goes_by_the_name(name: str, how: Format) -> None:
    assert guess_format(name) is how
