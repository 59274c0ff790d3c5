"""Every contract survives the wire, and requests say one thing."""

from __future__ import annotations

import functools
import json
import string
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Literal, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from tests import wire
from tests.filters import filters

from verso_core import crc, frame
from verso_core.errors import FrameInvalid, NotReady
from verso_core.jobs import (
    SLICE_COST,
    EmbedItem,
    EmbedParams,
    Failed,
    Filter,
    IngestItem,
    IngestParams,
    ItemError,
    Kind,
    Params,
    Queue,
    ReconstructRequest,
    Rejected,
    Result,
    SearchMode,
    SearchRequest,
    Status,
    cut,
    read_slice,
)
from verso_core.jobs.heads.answer import AnswerPart, UnreadRecord
from verso_core.jobs.heads.report import HeadReport
from verso_core.jobs.ingest import Embedded
from verso_core.jobs.migrate import MigrationResult
from verso_core.jobs.models import RecordText, Text
from verso_core.jobs.reconstruct import Guess, ReconstructItem, ReconstructParams
from verso_core.jobs.search import Explanation, Hit, Hits
from verso_core.jobs.slices import CONTRACTS, VERSION

_NAME = st.text(string.ascii_lowercase, min_size=1, max_size=6)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_FLOAT = st.floats(allow_nan=False, allow_infinity=False)
_PARAMS: dict[str, st.SearchStrategy[Any]] = {
    "limit": st.integers(1, 100),
    "rerank_from": st.integers(1, 256),
    "rerank_share": st.floats(0, 1),
    "eps": st.floats(0.01, 2),
    "min_samples": st.integers(1, 9),
    "min_size": st.integers(2, 9),
    "groups": st.integers(2, 12),
    "representatives": st.integers(0, 9),
    "name": _NAME,
    "collection": _NAME,
    "retention_days": st.one_of(st.none(), st.floats(0.01, 9)),
    "cursor": st.none(),
    "statement": st.sampled_from([None, "4"]),
    "before": st.integers(0, 9),
    "after": st.integers(0, 9),
}


@functools.cache  # a strategy costs more to make than a value to draw
def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Make values of a type that a contract uses."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values, arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (tuple, list):
        each = st.lists(values(arguments[0]), max_size=3)
        return each.map(tuple) if origin is tuple else each
    if origin in (dict, Mapping):
        return st.dictionaries(_NAME, values(arguments[1]), max_size=2)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        str: _NAME,
        bytes: st.binary(max_size=9),
        int: st.integers(-9, 1000),
        float: _FLOAT,
        bool: st.booleans(),
        type(None): st.none(),
        Any: _TEXT,
        datetime: st.just(datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)),
    }
    if annotation in simple:
        return simple[annotation]
    if issubclass(annotation, Enum):
        return st.sampled_from(annotation)
    if annotation is Filter:
        return filters().map(Filter.model_validate)
    return built(annotation)


@functools.cache
def hints_of(cls: Any) -> dict[str, Any]:
    """Return the types of a contract's fields."""
    return typing.get_type_hints(cls)


@st.composite
def built(draw: st.DrawFn, cls: Any) -> Any:
    """Build a contract's object with some of its fields set."""
    hints = hints_of(cls)
    if isinstance(cls, type) and is_dataclass(cls):
        return cls(**{one.name: draw(values(hints[one.name])) for one in fields(cls)})
    given_fields = {}
    for name, field in cls.model_fields.items():
        special = name in ("text", "text_base64", "error", "vector") and cls is not Embedded
        if not special and (field.is_required() or draw(st.booleans())):
            given_fields[name] = draw(
                _PARAMS.get(name, values(hints[name]))
                if issubclass(cls, Params)
                else values(hints[name])
            )
    if cls is Embedded:
        given_fields = {
            "tokens": 3,
            "truncated": draw(st.booleans()),
            "vector": draw(st.sampled_from([b"", b"\0\0\x80?"])),
        }
    if issubclass(cls, Text) and cls is not UnreadRecord:
        given_fields |= draw(st.sampled_from([{}, {"text": "é"}, {"text_base64": "/w=="}]))
    if issubclass(cls, RecordText) and (cls is not AnswerPart or "id" in given_fields):
        given_fields |= {"id": "d#2", "document": "d", "chunk": 2}
    elif cls is AnswerPart:
        given_fields.pop("document", None)
    if cls is UnreadRecord:
        given_fields["error"] = ItemError(code="record_corrupt", detail="odd", retryable=False)
    return cls(**given_fields)


@given(data=st.data())
@pytest.mark.parametrize("kind", list(Kind))
def test_params_and_items_survive_the_wire(kind: Kind, data: st.DataObject) -> None:
    contract = CONTRACTS[kind]
    params = data.draw(built(contract.params))
    rejected = Rejected({"code": "id_invalid", "detail": "no", "retryable": False})
    items = data.draw(st.lists(st.just(rejected) | built(contract.item), min_size=1, max_size=3))
    [spec] = cut(kind, params, items)
    found = read_slice(spec.payload)
    assert (found.kind, found.params, found.items) == (kind, params, tuple(items))
    assert params.model_fields_set == found.params.model_fields_set


RESULTS = [(kind, contract.result) for kind, contract in CONTRACTS.items()]
RESULTS += [(Kind.RECONSTRUCT, Guess), (Kind.HEADS, HeadReport)]


@given(data=st.data())
@pytest.mark.parametrize(("kind", "cls"), RESULTS)
def test_results_survive_the_wire(kind: Kind, cls: type[Any], data: st.DataObject) -> None:
    one = data.draw(built(cls))
    if cls is Guess:
        one = one.model_copy(update={"exact": False})
    elif kind is Kind.RECONSTRUCT:
        one = one.model_copy(update={"exact": True})
    failed = Failed(error=ItemError(code="record_corrupt", detail="odd", retryable=False), id="a")
    result = Result([one, failed], {"infer": 1.5})
    found = Result.unpack(kind, result.pack())
    expected = one
    if isinstance(one, MigrationResult) and one.migration is None and not one.buckets:
        expected = MigrationResult()  # of a migration that was cancelled nothing is left
    assert found.timings_ms == result.timings_ms
    assert found.ok == 1
    assert [item.public() for item in found.items] == [expected.public(), failed.public()]
    json.dumps(one.public())  # every result is JSON


@given(
    items=st.lists(st.builds(IngestItem, id=_NAME, text=st.binary(max_size=40)), max_size=12),
    max_items=st.integers(1, 5),
    max_bytes=st.integers(1, 60),
)
def test_cut_keeps_every_item_in_order(
    items: list[IngestItem], max_items: int, max_bytes: int
) -> None:
    params = IngestParams(collection="c")
    specs = list(cut(Kind.INGEST, params, items, max_items=max_items, max_bytes=max_bytes))
    slices = [read_slice(spec.payload) for spec in specs]
    assert [item for piece in slices for item in piece.items] == items
    for piece, spec in zip(slices, specs, strict=True):
        size = sum(len(item.text) for item in piece.accepted.values())
        assert len(piece.items) == spec.items <= max_items
        assert size <= max_bytes or len(piece.items) == 1
        assert (piece.kind, piece.params) == (Kind.INGEST, params)


def test_only_the_version_and_a_crc_were_added_to_the_form_of_a_slice() -> None:
    items = [IngestItem("a", b"text", {"k": 1}, 2.5), IngestItem("b", b"")]
    [new] = cut(Kind.INGEST, IngestParams(collection="c"), items)
    headers = [
        wire.Item({"id": "a", "metadata": {"k": 1}, "time": 2.5}, b"text"),
        wire.Item({"id": "b", "metadata": {}, "time": None}, b""),
    ]
    [old] = wire.cut(Kind.INGEST, {"collection": "c"}, headers)
    assert crc.intact(new.payload)
    header, blobs = frame.unpack(new.payload)
    assert header.pop("version") == VERSION
    assert header.pop("check") == "crc32"
    # workers of before the CRC read what the items name
    assert (header, blobs[:-1]) == frame.unpack(old.payload)
    assert read_slice(old.payload) == read_slice(new.payload)


def test_a_slice_of_a_later_version_waits_and_what_is_none_is_refused() -> None:
    header = {"version": VERSION + 1, "kind": "embed", "params": {}, "items": []}
    with pytest.raises(NotReady, match=r"version <= 1, got 2"):
        read_slice(frame.pack(header))
    for version in (-1, "2", None):
        with pytest.raises(FrameInvalid, match=r"version <= 1, got"):
            read_slice(frame.pack({**header, "version": version}))
    with pytest.raises(FrameInvalid, match="its CRC"):
        read_slice(frame.pack({**header, "version": VERSION, "check": "crc32"}, [bytes(4)]))
    with pytest.raises(FrameInvalid, match="its CRC"):
        read_slice(frame.pack({**header, "version": VERSION}, [bytes(4)]))


@given(
    text=st.binary(max_size=40),
    version=st.sampled_from([None, 0, VERSION]),
    places=st.sets(st.integers(0, 1 << 16), min_size=2, max_size=2),
)
def test_a_flipped_bit_of_a_slice_is_corrected_and_more_are_an_error(
    text: bytes, version: int | None, places: set[int]
) -> None:
    [spec] = cut(Kind.INGEST, IngestParams(collection="c"), [IngestItem("a", text, {"k": 1})])
    whole = read_slice(spec.payload)
    if version is not None:  # as it was written before there was a CRC
        header, blobs = frame.unpack(spec.payload)
        del header["check"]
        assert read_slice(frame.pack({**header, "version": version}, blobs[:-1])) == whole
        return
    damaged = [place % (8 * len(spec.payload)) for place in places]
    for place in damaged:
        assert read_slice(crc.flipped(spec.payload, place)) == whole
    if len(set(damaged)) == 2:
        with pytest.raises(FrameInvalid):
            read_slice(functools.reduce(crc.flipped, damaged, spec.payload))


@pytest.mark.parametrize(
    "header",
    [
        {"kind": "embed"},
        {"kind": "nothing", "params": {}, "items": []},
        {"kind": "ingest", "params": {}, "items": []},
        {"kind": "embed", "params": {}, "items": [{}]},
        {"kind": "embed", "params": {}, "items": [{"blob": 3}]},
        {"kind": "embed", "params": {}, "items": ["text"]},
    ],
)
def test_a_frame_that_is_no_slice_is_refused(header: dict[str, Any]) -> None:
    with pytest.raises(FrameInvalid, match="slice"):
        read_slice(frame.pack(header))


def test_keys_of_a_later_version_are_ignored() -> None:
    [spec] = wire.cut(
        Kind.INGEST, {"collection": "c", "new": 1}, [wire.Item({"id": "a", "new": 2}, b"text")]
    )
    found = read_slice(spec.payload)
    assert found.params == IngestParams(collection="c")
    assert found.items == (IngestItem("a", b"text"),)


def test_a_rejected_item_carries_its_error_and_its_id() -> None:
    body = {"code": "duplicate_id", "detail": "twice", "retryable": False}
    [spec] = wire.cut(Kind.INGEST, {"collection": "c"}, [wire.Item({"id": "a", "rejected": body})])
    assert read_slice(spec.payload).items == (Rejected(body, "a"),)  # type: ignore[arg-type]


def test_a_text_that_is_not_utf_8_comes_back_as_its_bytes() -> None:
    hit = Hit(id="d#0", document="d", chunk=0, score=1.0, text_base64="/w==")
    assert hit.data == b"\xff"
    with pytest.raises(ValueError, match="no text"):
        _ = Hit(id="d#0", document="d", chunk=0, score=1.0).data


def test_unknown_keys_of_an_answer_are_ignored() -> None:
    row = {"id": "d#0", "document": "d", "chunk": 0, "score": 1.0, "new": {"a": 1}}
    assert Hit.model_validate(row).score == 1.0


def test_every_contract_has_its_table_entry() -> None:
    assert set(CONTRACTS) == set(Kind)
    assert all(issubclass(one.params, BaseModel) for one in CONTRACTS.values())


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


def test_a_queue_with_wake_ups_has_slots_in_every_worker() -> None:
    """A worker serves all of them; its settings name the slots of these."""
    woken = {queue for queue in Queue if queue.takes_wakeups}
    assert woken == {Queue.INTERACTIVE, Queue.BULK, Queue.SCRUB, Queue.FIT}


def test_a_search_without_explain_has_the_slice_that_it_had_before() -> None:
    """Absent and false are the same bytes; true is written."""
    plain, no, yes = (
        SearchRequest(query="a", **option).params(SearchMode.DENSE).header()
        for option in ({}, {"explain": False}, {"explain": True})
    )
    assert plain == no
    assert "explain" not in plain
    assert yes == plain | {"explain": True}


def test_an_explanation_survives_the_frame_with_the_parts_that_it_had() -> None:
    hit = Hit(id="d#0", document="d", chunk=0, score=0.5, explain=Explanation(dense=0.5))
    packed = Result([Hits(hits=(hit,))]).pack()
    [read] = Result.unpack(Kind.SEARCH, packed).only.hits
    assert read.public()["explain"] == {"dense": 0.5}


def test_a_guess_costs_by_its_beam_and_a_text_by_the_window_that_is_read() -> None:
    bare = ReconstructParams()
    guess = ReconstructItem(vector=True, beam=1, data=b"")
    assert bare.cost(replace(guess, beam=16)) > 3 * bare.cost(guess)
    assert bare.cost(guess) > 10 * bare.cost(ReconstructItem("a"))
    embed = EmbedParams()
    assert embed.cost(EmbedItem(b"x" * 1_000_000)) == embed.cost(EmbedItem(b"x" * 10_000))


def test_costly_items_are_cut_into_more_slices() -> None:
    """256 vectors with 16 beams are minutes of work: no slice of them may hold a slot for long."""
    items = [ReconstructItem(vector=True, beam=16, data=b"v") for _ in range(256)]
    slices = list(cut(Kind.RECONSTRUCT, ReconstructParams(), items, max_cost=SLICE_COST))
    assert len(slices) == 256
    assert {one.items for one in slices} == {1}
    assert all((one.cost or 0) <= SLICE_COST for one in slices)
    stored = [ReconstructItem(f"d{n}") for n in range(256)]
    assert len(list(cut(Kind.RECONSTRUCT, ReconstructParams(), stored, max_cost=SLICE_COST))) <= 4
