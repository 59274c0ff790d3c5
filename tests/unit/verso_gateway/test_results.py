"""Facts about results as JSON values."""

from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st

from verso_core.jobs import Kind, Result
from verso_gateway import results

_ERROR = {"code": "text_too_large", "detail": "expected less", "retryable": False}


@given(st.binary())
def test_a_text_field_gives_every_byte_back(data: bytes) -> None:
    field = results.text_field(data)
    assert len(field) == 1
    if "text" in field:
        assert field["text"].encode() == data
    else:
        assert base64.b64decode(field["text_base64"]) == data


def test_vectors_are_numbers_or_base64_of_the_same_bytes() -> None:
    result = Result([{"ok": True, "tokens": 3, "blob": 0}], [bytes.fromhex("0000803f0000003f")])
    assert results.render(Kind.EMBED, result) == [{"tokens": 3, "embedding": [1.0, 0.5]}]
    [item] = results.render(Kind.EMBED, result, vectors_base64=True)
    assert base64.b64decode(item["embedding"]) == result.blobs[0]


def test_hits_name_records_and_carry_text_or_error() -> None:
    hit = {"id": "d", "chunk": 2, "score": 0.5, "metadata": {}, "time": None}
    result = Result(
        [
            {
                "ok": True,
                "hits": [hit | {"blob": 0, "error": None}, hit | {"blob": None, "error": _ERROR}],
            }
        ],
        [b"\xff"],
    )
    [item] = results.render(Kind.SEARCH, result)
    common = {"id": "d#2", "document": "d", "chunk": 2, "score": 0.5, "metadata": {}, "time": None}
    assert item == {"hits": [common | {"text_base64": "/w=="}, common | {"error": _ERROR}]}


def test_a_failed_item_keeps_its_place_and_its_error() -> None:
    result = Result([{"ok": False, "id": "a", "error": _ERROR}, {"ok": True, "id": "b"}])
    assert results.render(Kind.INGEST, result) == [{"id": "a", "error": _ERROR}, {"id": "b"}]


def test_timings_add_up_over_slices() -> None:
    slices = [
        Result([], timings_ms={"infer": 1.5}),
        Result([], timings_ms={"infer": 1, "store": 2}),
    ]
    total = results.total_timings(slices)
    assert total == {"infer": 2.5, "store": 2.0}
    assert results.server_timing(total) == "infer;dur=2.5, store;dur=2"
