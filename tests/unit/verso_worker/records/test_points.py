"""Payloads, filters and exact ranking of points."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.filters import metadata

from verso_core.errors import IdInvalid, MetadataInvalid, VectorInvalid
from verso_core.jobs import Precision
from verso_core.jobs.collections import MAX_TIME_PARTITIONS, CollectionParams, partition_name
from verso_worker.records.points import (
    Candidates,
    Point,
    check_name,
    packed,
    path_in_payload,
    ranked,
    stacked,
    unpacked,
)
from verso_worker.records.space import Space

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)


@given(metadata=metadata())
def test_a_packed_payload_unpacks_to_itself(metadata: dict[str, Any]) -> None:
    payload = {"d": "doc", "n": 0, "t": 1.5, "m": metadata}
    kept = json.loads(json.dumps(packed(payload)))
    assert json.dumps(unpacked(kept)) == json.dumps(payload)


@given(metadata=st.dictionaries(TEXTS, SCALARS, max_size=5))
def test_any_scalar_and_any_key_comes_back(metadata: dict[str, Any]) -> None:
    kept = json.loads(json.dumps(packed({"m": metadata})))
    assert json.dumps(unpacked(kept)["m"]) == json.dumps(metadata)


@given(key=TEXTS)
def test_a_metadata_key_never_ends_its_quoted_path(key: str) -> None:
    path = path_in_payload(f"metadata.{key}")
    assert path[:3] == 'm."'
    assert path[-1] == '"'
    assert not {'"', "\\"} & set(path[3:-1])


def test_empty_metadata_takes_no_room() -> None:
    assert packed({"d": "doc", "n": 0, "m": {}}) == {"d": "doc", "n": 0}


def test_flat_metadata_takes_no_room_twice() -> None:
    flat = {"host": "a", "code": 7, "ok": True, "share": 0.5}
    assert packed({"m": flat}) == {"m": {**flat, "ok": "\x01true"}}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**63, -(2**63), "\ud800", [[1]]])
def test_metadata_that_an_engine_would_change_is_refused(value: Any) -> None:
    with pytest.raises(MetadataInvalid):
        packed({"m": {"key": value}})


def test_a_payload_of_an_earlier_release_is_read() -> None:
    kept = {"d": "doc", "n": 0, "m": {"whole": 2.0, "big": 2**60, "%22": "\x01false", "a.b": 1}}
    assert unpacked(kept)["m"] == {"whole": 2.0, "big": 2**60, '"': False, "a.b": 1}


def test_a_boolean_is_never_taken_for_a_string_or_a_number() -> None:
    values = [True, False, 1, 0, "true", "\x01true", "\x01", "\x01\x01false", ""]
    kept = [packed({"m": {"k": value}})["m"]["k"] for value in values]
    assert len({(type(value), value) for value in kept}) == len(values)
    back = [unpacked({"m": {"k": value}})["m"]["k"] for value in kept]
    assert [(type(v), v) for v in back] == [(type(v), v) for v in values]


@pytest.mark.parametrize("name", ["", "A", "-a", "a/b", "..", "a" * 65, "a\n", "é"])
def test_names_that_are_no_folders_are_refused(name: str) -> None:
    with pytest.raises(IdInvalid):
        check_name(name)


@pytest.mark.parametrize("number", [0, 99, 100, MAX_TIME_PARTITIONS - 1])
def test_every_partition_has_a_name_that_is_stored(number: int) -> None:
    name = partition_name("a" * 64, number)
    assert check_name(name) == CollectionParams(name=name).name == name


def test_vectors_of_one_batch_must_agree() -> None:
    one = Point(UUID(int=1), np.zeros(4, np.int8), {})
    with pytest.raises(VectorInvalid):
        stacked([one, Point(UUID(int=2), np.zeros(5, np.int8), {})])
    with pytest.raises(VectorInvalid):
        stacked([one, Point(UUID(int=2), np.zeros(4, np.float16), {})])


def test_ranking_is_exact_and_breaks_ties_by_id() -> None:
    space = Space(Precision.INT8, 2, 100.0)
    stored = np.array([[0, 100], [100, 0], [100, 0], [70, 71]], np.int8)
    ids = [UUID(int=n) for n in (4, 3, 2, 1)]
    found = Candidates(ids, stored, [{"n": n} for n in range(4)], [0.0] * 4)
    hits = ranked(space, np.array([1, 0], np.float32), found=found, limit=3)
    assert [hit.id.int for hit in hits] == [2, 3, 1]
    assert [hit.score for hit in hits] == pytest.approx([1.0, 1.0, 0.7])
    assert hits[0].payload == {"n": 2, "m": {}}
