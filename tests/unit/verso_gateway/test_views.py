"""Facts about results as JSON values."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests import wire

from verso_core.jobs import AnyResult, Kind, Result
from verso_core.jobs.models import text_field
from verso_gateway import views

_ERROR = {"code": "text_too_large", "detail": "expected less", "retryable": False}
_VECTOR = bytes.fromhex("0000803f0000003f")


def _rendered(kind: Kind, frame: wire.Result, **how: bool) -> list[dict[str, Any]]:
    return views.rendered([Result.unpack(kind, frame.pack())], **how)


@given(st.binary())
def test_a_text_field_holds_every_byte(data: bytes) -> None:
    field = text_field(data)
    assert len(field) == 1
    if "text" in field:
        assert field["text"].encode() == data
    else:
        assert base64.b64decode(field["text_base64"]) == data


def test_vectors_are_numbers_or_base64_of_the_same_bytes() -> None:
    result = wire.Result([{"ok": True, "tokens": 3, "blob": 0}], [_VECTOR])
    assert _rendered(Kind.EMBED, result) == [
        {"tokens": 3, "truncated": False, "embedding": (1.0, 0.5)}
    ]
    [item] = _rendered(Kind.EMBED, result, vectors_base64=True)
    assert base64.b64decode(item["embedding"]) == _VECTOR


def test_hits_name_records_and_carry_text_or_error() -> None:
    hit = {"id": "d", "chunk": 2, "score": 0.5, "metadata": {}, "time": None}
    result = wire.Result(
        [
            {
                "ok": True,
                "hits": [hit | {"blob": 0, "error": None}, hit | {"blob": None, "error": _ERROR}],
            }
        ],
        [b"\xff"],
    )
    [item] = _rendered(Kind.SEARCH, result)
    common = {"id": "d#2", "document": "d", "chunk": 2, "score": 0.5, "metadata": {}, "time": None}
    assert item == {"hits": [common | {"text_base64": "/w=="}, common | {"error": _ERROR}]}


def test_a_failed_item_keeps_its_index_and_its_error() -> None:
    result = wire.Result([{"ok": False, "id": "a", "error": _ERROR}, {"ok": True, "id": "b"}])
    assert _rendered(Kind.INGEST, result) == [{"id": "a", "error": _ERROR}, {"id": "b"}]


def test_timings_add_up_over_slices() -> None:
    slices: list[AnyResult] = [
        Result([], timings_ms={"infer": 1.5}),
        Result([], timings_ms={"infer": 1, "store": 2}),
    ]
    assert views.total_timings(slices) == {"infer": 2.5, "store": 2.0}
    assert views.server_timing(slices) == "infer;dur=2.5, store;dur=2"
