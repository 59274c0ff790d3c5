"""Documents become uploads and lose nothing on the way."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_client.operations.documents import Document, uploads
from verso_core.errors import MetadataInvalid, RequestInvalid


def bytes_of(line: bytes) -> bytes:
    row = json.loads(line)
    return base64.b64decode(row["text_base64"]) if "text_base64" in row else row["text"].encode()


@given(st.lists(st.one_of(st.binary(max_size=200), st.text(max_size=100))), st.integers(1, 7))
def test_every_byte_and_the_order_survive_the_upload(
    texts: list[bytes | str], max_documents: int
) -> None:
    texts = [
        t for t in texts if isinstance(t, bytes) or not any(0xD800 <= ord(c) < 0xE000 for c in t)
    ]
    documents = [Document(text) for text in texts]
    made = list(uploads(documents, max_documents=max_documents, max_bytes=300))
    lines = [line for upload in made for line in upload.body.split(b"\n")]
    assert [bytes_of(line) for line in lines] == [
        t if isinstance(t, bytes) else t.encode() for t in texts
    ]
    assert sum(upload.documents for upload in made) == len(texts)
    assert all(upload.documents <= max_documents for upload in made)


def test_a_document_larger_than_an_upload_goes_alone() -> None:
    made = list(uploads([Document("a"), Document("b" * 500), Document("c")], max_bytes=100))
    assert [upload.documents for upload in made] == [1, 1, 1]


def test_a_line_break_in_a_text_does_not_break_the_line() -> None:
    [upload] = uploads([Document("one\r\ntwo\u2028three\u0085four")])
    assert b"\n" not in upload.body
    assert bytes_of(upload.body) == "one\r\ntwo\u2028three\u0085four".encode()


def test_a_lone_surrogate_travels_to_the_platform_that_names_the_fault() -> None:
    assert json.loads(Document("\ud800").line())["text"] == "\ud800"


def test_a_time_may_be_a_datetime_with_its_offset() -> None:
    row = json.loads(Document("a", time=datetime(2026, 1, 2, tzinfo=UTC)).line())
    assert row["time"] == 1767312000.0


def test_a_time_without_offset_is_refused() -> None:
    with pytest.raises(RequestInvalid, match="offset"):
        Document("a", time=datetime(2026, 1, 2)).line()  # noqa: DTZ001 - what is refused


@pytest.mark.parametrize("value", [datetime(2026, 1, 2, tzinfo=UTC), b"a", {1}])
def test_metadata_that_json_has_not_is_refused(value: object) -> None:
    with pytest.raises(MetadataInvalid, match="JSON"):
        Document("a", metadata={"a": value}).line()
