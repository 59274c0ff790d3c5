"""Facts about documents on their way in."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.jobs import IngestItem, Rejected
from verso_core.jobs.ingest import MAX_REFUSALS
from verso_core.texts import MAX_TEXT_BYTES
from verso_gateway.bodies.intake import Intake

Taken = IngestItem | Rejected


def _take(*documents: object) -> list[Taken]:
    intake = Intake()
    return [intake.take(one, where=f"document {n}") for n, one in enumerate(documents)]


def _good(item: Taken) -> IngestItem:
    assert isinstance(item, IngestItem)
    return item


def _bad(item: Taken) -> Rejected:
    assert isinstance(item, Rejected)
    return item


def _code(item: Taken) -> str:
    return _bad(item).error["code"]


@given(st.binary(max_size=200))
def test_base64_bytes_are_kept_exactly(data: bytes) -> None:
    [item] = _take({"text_base64": base64.b64encode(data).decode()})
    assert _good(item).text == data


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_a_text_is_kept_as_its_utf8_bytes(text: str) -> None:
    [item] = _take({"id": "a", "text": text})
    assert item == IngestItem("a", text.encode(), {}, None)


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ("text", "request_invalid"),
        ({}, "request_invalid"),
        ({"text": "a", "text_base64": "YQ=="}, "request_invalid"),
        ({"text": 1}, "request_invalid"),
        ({"text_base64": "?"}, "request_invalid"),
        ({"text_base64": "YQ"}, "request_invalid"),
        ({"text_base64": "\ud800"}, "request_invalid"),
        ({"text": "a", "txet": 1}, "request_invalid"),
        ({"text": "a", "\ud800": 1}, "request_invalid"),
        ({"text": "\ud800"}, "text_not_encodable"),
        ({"text": "a" * (MAX_TEXT_BYTES + 1)}, "text_too_large"),
        ({"text": "a", "id": ""}, "id_invalid"),
        ({"text": "a", "id": 7}, "id_invalid"),
        ({"text": "a", "id": "doc#1"}, "id_invalid"),
        ({"text": "a", "id": "a\nb"}, "id_invalid"),
        ({"text": "a", "id": "\ud800"}, "id_invalid"),
        ({"text": "a", "id": "é" * 129}, "id_invalid"),
        ({"text": "a", "metadata": []}, "metadata_invalid"),
        ({"text": "a", "metadata": {"k": [[1]]}}, "metadata_invalid"),
        ({"text": "a", "metadata": {"k": [{}]}}, "metadata_invalid"),
        ({"text": "a", "metadata": {"k": 2**63}}, "metadata_invalid"),
        ({"text": "a", "metadata": {"k": "\ud800"}}, "metadata_invalid"),
        ({"text": "a", "metadata": {"k": "v" * 5000}}, "metadata_invalid"),
        ({"text": "a", "time": True}, "request_invalid"),
        ({"text": "a", "time": "yesterday"}, "request_invalid"),
        ({"text": "a", "time": "2026-01-01T00:00:00"}, "request_invalid"),
        ({"text": "a", "time": "\ud800"}, "text_not_encodable"),
        ({"text": "a", "time": 10**400}, "request_invalid"),
        ({"text": "a", "time": []}, "request_invalid"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_document_fails_alone_and_in_its_place(document: object, code: str) -> None:
    before, item, after = _take({"text": "x"}, document, {"text": "y"})
    assert _code(item) == code
    assert _bad(item).error["detail"].startswith("document 1: ")
    assert (_good(before).text, _good(after).text) == (b"x", b"y")


@pytest.mark.parametrize(
    ("time", "seconds"),
    [(0, 0.0), (1.5, 1.5), ("1970-01-01T00:00:10Z", 10.0), ("1970-01-01T01:00:00+01:00", 0.0)],
)
def test_times_are_unix_seconds_or_rfc_3339(time: object, seconds: float) -> None:
    [item] = _take({"text": "a", "time": time})
    assert _good(item).time == seconds


def test_a_repeated_id_is_refused_the_second_time() -> None:
    first, second = _take({"id": "a", "text": "1"}, {"id": "a", "text": "2"})
    assert _good(first).text == b"1"
    assert _code(second) == "duplicate_id"
    assert _bad(second).id == "a"


def test_a_refused_document_does_not_use_its_id_up() -> None:
    bad, good = _take({"id": "a", "text": "\ud800"}, {"id": "a", "text": "2"})
    assert _code(bad) == "text_not_encodable"
    assert _good(good).text == b"2"


def test_ids_that_were_not_given_are_new_and_in_order() -> None:
    """Equal documents stay two, in one request and in two of them."""
    documents = [{"text": "a"}, {"text": "a"}, {"text": "b"}]
    ids = [_good(item).id for _ in range(2) for item in _take(*documents)]
    assert len(set(ids)) == 6
    for one in (ids[:3], ids[3:]):
        assert one == sorted(one)


def test_what_was_refused_is_counted_with_the_first_reasons() -> None:
    intake = Intake()
    for number in range(60):
        intake.take({"text": "a"} if number % 2 else {"txt": "a"}, where=f"line {number}")
    told = intake.summary
    assert (told.accepted, told.refused, len(told.refusals)) == (30, 30, MAX_REFUSALS)
    assert told.refusals[1].error.detail.startswith("line 2: expected the keys")


def test_a_document_beside_lines_cannot_have_the_id_of_a_line() -> None:
    intake = Intake(beside_lines=True)
    taken = intake.take({"id": "3:1042", "text": "a"}, where="line 1")
    assert isinstance(taken, Rejected)
    assert isinstance(intake.take({"id": "app:1042", "text": "a"}, where="line 2"), IngestItem)
    other = Intake().take({"id": "3:1042", "text": "a"}, where="line 1")
    assert isinstance(other, IngestItem)
