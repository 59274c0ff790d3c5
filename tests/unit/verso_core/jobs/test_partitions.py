"""Which partition has a document, and what partitions are called."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from verso_core.jobs.collections import (
    MAX_PARTITIONS,
    CollectionRequest,
    Partitioned,
    collection_of_partition,
    partition_names,
    partition_of,
)
from verso_core.jobs.models import Name, StoredName


@given(document=st.text(min_size=1), partitions=st.integers(1, MAX_PARTITIONS))
def test_every_document_has_one_partition_of_those_there_are(
    document: str, partitions: int
) -> None:
    assert 0 <= partition_of(document, partitions) < partitions


@given(document=st.text(min_size=1), partitions=st.integers(1, MAX_PARTITIONS // 2))
def test_twice_as_many_partitions_halve_each(document: str, partitions: int) -> None:
    """Parts of the hash's range: so partitions could be split in place one day."""
    assert partition_of(document, 2 * partitions) // 2 == partition_of(document, partitions)


def test_the_partition_of_an_id_never_changes() -> None:
    """Documents are where this says: another answer would lose them."""
    assert [partition_of(one, 8) for one in ("boot-1", "d000", "ü", "a" * 256)] == [7, 0, 2, 3]


def test_documents_are_spread_evenly() -> None:
    counts = Counter(partition_of(f"d{n}", 8) for n in range(8_000))
    assert min(counts.values()) > 850
    assert max(counts.values()) < 1150


def test_names_of_partitions_are_no_names_that_users_give() -> None:
    names = partition_names("a-b_c", MAX_PARTITIONS)
    assert len(set(names)) == MAX_PARTITIONS
    for name in names:
        assert TypeAdapter(StoredName).validate_python(name) == name
        assert collection_of_partition(name) == "a-b_c"
        with pytest.raises(ValidationError):
            TypeAdapter(Name).validate_python(name)
    assert collection_of_partition("a-b_c") is None


@pytest.mark.parametrize("partitions", [0, -1, MAX_PARTITIONS + 1])
def test_a_collection_has_one_partition_at_least_and_no_more_than_the_bound(
    partitions: int,
) -> None:
    with pytest.raises(ValidationError):
        CollectionRequest(name="c", partitions=partitions)


def test_what_a_later_release_notes_of_partitions_stays_when_this_one_changes_them() -> None:
    part = {"number": 3, "stage": "live", "since": 1.0, "new": [1]}
    note = {"partitions": 1, "stage": "live", "parts": [part], "writing": 3, "newer": {"a": 1}}
    state = Partitioned.model_validate_json(json.dumps(note))
    changed = json.loads(state.changed(3, rolled=2.0).model_dump_json())
    assert changed["newer"] == {"a": 1}
    assert changed["parts"][0] == part | {"rolled": 2.0, "first": None, "last": None}
    assert state != Partitioned.model_validate({**note, "newer": 2})
