"""Ids, texts and metadata are checked once, here."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.errors import (
    IdInvalid,
    MetadataInvalid,
    RequestInvalid,
    TextNotEncodable,
    TextTooLarge,
)
from verso_core.texts import (
    MAX_TEXT_BYTES,
    check_document_id,
    check_metadata,
    split_record_id,
    text_bytes,
    text_from_base64,
    values_of,
)


@pytest.mark.parametrize("name", ["a", "log/2024 x.txt", "ü" * 128, "a#b", "#1x", "x#"])
def test_ordinary_ids_are_taken(name: str) -> None:
    assert check_document_id(name) == name


@pytest.mark.parametrize("name", ["", "a\n", "a\x00", "x" * 257, "ü" * 129, "doc#0", "\ud800", 7])
def test_other_ids_are_refused(name: object) -> None:
    with pytest.raises(IdInvalid):
        check_document_id(name)


def test_a_record_is_named_by_document_and_chunk() -> None:
    assert split_record_id("report#12") == ("report", 12)
    assert split_record_id("report") == ("report", None)


@given(data=st.binary(max_size=100))
def test_base64_gives_any_bytes(data: bytes) -> None:
    assert text_from_base64(base64.b64encode(data).decode()) == data


@pytest.mark.parametrize("text", ["abc", "a===", "Zm9v\n!", "ÄÄÄÄ"])
def test_what_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(RequestInvalid):
        text_from_base64(text)


def test_a_lone_surrogate_names_no_bytes() -> None:
    with pytest.raises(TextNotEncodable, match="character 1"):
        text_bytes("a\udfff")


def test_a_text_may_have_the_limit_and_no_byte_more() -> None:
    assert len(text_bytes("x" * MAX_TEXT_BYTES)) == MAX_TEXT_BYTES
    with pytest.raises(TextTooLarge):
        text_bytes("x" * (MAX_TEXT_BYTES + 1))


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        [],
        {"a": [[1]]},
        {"a": [{"b": 1}]},
        {"a": {"b": {1}}},
        {"a": float("inf")},
        {"a": -(2**63)},
        {"a": [""] * 5000},
        {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {}}}}}}}}},
        {"a": "x" * 5000},
        {"\ud800": 1},
    ],
)
def test_metadata_that_is_no_metadata_is_refused(metadata: object) -> None:
    with pytest.raises(MetadataInvalid):
        check_metadata(metadata)


def test_metadata_holds_null_lists_and_nested_objects() -> None:
    given = {"a": None, "b": [1, "x", None], "c": {"d": {"e": True}, "f": 2}, "c.f": 3, "g": []}
    assert check_metadata(given) == given
    assert values_of(given) == {"b": [1, "x"], "c.d.e": [True], "c.f": [2, 3]}
