"""Slices keep items, bytes and order; requests say one thing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from verso_core import frame
from verso_core.errors import (
    FrameInvalid,
)
from verso_core.jobs import (
    Item,
    Kind,
    Queue,
    ReconstructRequest,
    Result,
    SearchRequest,
    Status,
    cut,
    read_slice,
)

_items = st.lists(
    st.builds(
        Item,
        header=st.fixed_dictionaries({"id": st.text(max_size=8)}),
        blob=st.none() | st.binary(max_size=40),
    ),
    max_size=12,
)


@given(items=_items, max_items=st.integers(1, 5), max_bytes=st.integers(1, 60))
def test_cut_keeps_every_item_in_order(items: list[Item], max_items: int, max_bytes: int) -> None:
    specs = list(
        cut(Kind.INGEST, {"collection": "c"}, items, max_items=max_items, max_bytes=max_bytes)
    )
    slices = [read_slice(spec.payload) for spec in specs]
    found = [item for piece in slices for item in piece.items]
    assert [(i.header["id"], i.blob) for i in found] == [(i.header["id"], i.blob) for i in items]
    for piece, spec in zip(slices, specs, strict=True):
        size = sum(len(item.blob or b"") for item in piece.items)
        assert len(piece.items) == spec.items <= max_items
        assert size <= max_bytes or len(piece.items) == 1
        assert piece.kind is Kind.INGEST
        assert piece.params == {"collection": "c"}


def test_a_frame_that_is_no_slice_is_refused() -> None:
    with pytest.raises(FrameInvalid, match="slice"):
        read_slice(frame.pack({"kind": "embed"}))


def test_a_rejected_item_carries_its_error() -> None:
    body = {"code": "duplicate_id", "detail": "twice", "retryable": False}
    [spec] = cut(Kind.INGEST, {}, [Item({"id": "a", "rejected": body})])
    assert read_slice(spec.payload).items[0].rejected == body


@given(blobs=st.lists(st.binary(max_size=20), max_size=4))
def test_a_result_reads_back(blobs: list[bytes]) -> None:
    result = Result([], timings_ms={"infer": 1.5})
    for blob in blobs:
        result.items.append({"ok": True, "blob": result.add_blob(blob)})
    result.items.append({"ok": False})
    assert Result.unpack(result.pack()) == result
    assert result.ok == len(blobs)


def test_a_search_has_exactly_one_query() -> None:
    assert SearchRequest(query="x").limit == 10
    for wrong in ({}, {"query": "x", "id": "y"}):
        with pytest.raises(ValidationError, match="exactly one"):
            SearchRequest.model_validate(wrong)


def test_a_reconstruct_has_exactly_one_source() -> None:
    with pytest.raises(ValidationError, match="exactly one"):
        ReconstructRequest.model_validate({"ids": ["a"], "vectors": [[0.1]]})


def test_a_typing_error_in_a_request_is_not_ignored() -> None:
    with pytest.raises(ValidationError, match="extra"):
        SearchRequest.model_validate({"query": "x", "limt": 3})


def test_five_states_are_terminal() -> None:
    assert sum(status.terminal for status in Status) == 5


def test_a_queue_with_bells_has_hands_in_every_worker() -> None:
    """A worker looks around all of them; its settings name the hands of these three."""
    woken = {queue for queue in Queue if queue.takes_wakeups}
    assert woken == {Queue.INTERACTIVE, Queue.BULK, Queue.SCRUB}
