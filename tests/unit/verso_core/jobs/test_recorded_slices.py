"""Slices and results that the version before wrote are read, and mean what they meant.

They were recorded from a running platform of that version (tests/data/written-before).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from tests.support.written_before import Recorded, holds, meaning, slices

from verso_core.errors import FrameInvalid
from verso_core.jobs import Kind, Result, cut, read_slice
from verso_core.jobs.slices import CONTRACTS

ALL = pytest.mark.parametrize("row", slices(), ids=lambda row: str(row.name))
NO_LIMIT = 1 << 30
SINCE = {
    *(Kind.LIST, Kind.COUNT, Kind.FACETS, Kind.UPDATE, Kind.DELETE_MATCHING),
    *(Kind.COLLECTION_CHANGE, Kind.FIT, Kind.INGEST_LINES, Kind.LINES),
    *(Kind.VOLUME, Kind.LABELS, Kind.STATEMENTS, Kind.PROJECT, Kind.RECORDS, Kind.FEEDBACK),
}
"""Kinds that the version before did not have."""


def test_slices_of_every_kind_were_recorded() -> None:
    assert {row.kind for row in slices()} == set(Kind) - SINCE
    assert {row.kind for row in slices() if row.result is not None} == set(Kind) - SINCE


@ALL
def test_a_payload_is_read_as_its_kinds_classes_and_written_again(row: Recorded) -> None:
    work = read_slice(row.payload)
    contract = CONTRACTS[Kind(row.kind)]
    assert work.kind == row.kind
    assert type(work.params) is contract.params
    assert {type(item) for item in work.accepted.values()} <= {contract.item}
    assert [
        n for n, item in enumerate(row.payload_holds["header"]["items"]) if "rejected" in item
    ] == [n for n in range(len(work.items)) if n not in work.accepted]
    [spec] = cut(work.kind, work.params, work.items, max_items=NO_LIMIT, max_bytes=NO_LIMIT)
    assert spec.items == len(row.payload_holds["header"]["items"])
    again = meaning(holds(spec.payload))
    assert again.pop("version") >= 1
    assert again.pop("check") == "crc32"
    assert again == meaning(row.payload_holds)


@pytest.mark.parametrize(
    "row", [row for row in slices() if row.result is not None], ids=lambda row: str(row.name)
)
def test_a_result_is_read_as_its_kinds_classes_and_written_again(row: Recorded) -> None:
    assert row.result is not None
    assert row.result_holds is not None
    result = Result.unpack(Kind(row.kind), row.result)
    items = row.result_holds["header"]["items"]
    assert len(result.items) == len(items)
    assert result.ok == sum(item["ok"] for item in items)
    found, expected = holds(result.pack()), row.result_holds
    assert meaning(found, without_nulls=True) == meaning(expected, without_nulls=True)


SHAPED = ("/v1/embeddings", "/v1/score", "/v1/rerank", "/v1/registry", "/v1/heads/", "/migrate")
"""Parts of the paths of routes that answer in a shape of their own."""
ANSWERED = [
    row for row in slices()
    if row.request is not None
    and row.result is not None
    and not any(part in row.request["path"] for part in SHAPED)
]  # fmt: skip
ENVELOPE = {"job_id", "timings_ms", "collection"}


@pytest.mark.parametrize(
    "row", [row for row in ANSWERED if "code" not in row.answer], ids=lambda row: str(row.name)
)
def test_a_result_is_answered_as_it_was(row: Recorded) -> None:
    assert row.result is not None
    items = Result.unpack(Kind(row.kind), row.result).items
    found = [item.public(vectors_base64="embed-base64" in row.name) for item in items]
    for one, expected in zip(map(_to_ms, found), _answered(row, len(items)), strict=True):
        assert one.keys() >= expected.keys()
        for key, value in expected.items():
            assert one[key] == pytest.approx(value) if key == "embedding" else one[key] == value


def _answered(row: Recorded, count: int) -> list[dict[str, Any]]:
    """Return the JSON objects of a slice's items, as they were answered."""
    if "results" in row.answer:
        whole: list[dict[str, Any]] = row.answer["results"]
        return whole[-count:] if row.name.endswith("-1") else whole[:count]
    return [_to_ms({key: value for key, value in row.answer.items() if key not in ENVELOPE})]


def _to_ms(value: Any) -> Any:
    """Return an answer with the times of its objects in milliseconds, in which all agree now."""
    if isinstance(value, list):
        return list(map(_to_ms, value))
    if not isinstance(value, dict):
        return value
    return {
        key: int(datetime.fromisoformat(one).timestamp() * 1000)
        if key == "created" and one is not None
        else _to_ms(one)
        for key, one in value.items()
    }


@pytest.mark.parametrize(
    "row", [row for row in ANSWERED if "code" in row.answer], ids=lambda row: str(row.name)
)
def test_a_result_that_was_answered_as_a_problem_says_why(row: Recorded) -> None:
    assert row.result is not None
    [item] = Result.unpack(Kind(row.kind), row.result).items
    said = item.public()
    if "error" in said:
        assert said["error"]["code"] == row.answer["code"]
    else:
        assert (row.kind, said["deleted"]) == ("delete", False)


@ALL
def test_a_payload_that_lost_a_byte_is_refused(row: Recorded) -> None:
    with pytest.raises(FrameInvalid):
        read_slice(row.payload[:-1])
