"""Slices and results that commit 77fee1d wrote are read whole (tests/data/written-before)."""

from __future__ import annotations

import base64
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from tests import wire

from verso_core.jobs import Kind, Result, cut, read_slice

_FILE = Path(__file__).parents[3] / "data" / "written-before" / "slices.jsonl.xz"
RECORDED = [json.loads(line) for line in lzma.decompress(_FILE.read_bytes()).splitlines()]


def _known(value: Any) -> Any:
    """Return a result's object without what says nothing, and without the order of its blobs."""
    if isinstance(value, dict):
        nothing = {name for name in ("error", "blob") if value.get(name) is None} | {"blob"}
        return {name: _known(one) for name, one in value.items() if name not in nothing}
    return list(map(_known, value)) if isinstance(value, list) else value


@pytest.mark.parametrize("number", range(len(RECORDED)))
def test_a_recorded_result_says_what_it_said(number: int) -> None:
    recorded = RECORDED[number]
    if recorded["result"] is None:
        return  # the slice failed as a whole
    frame = base64.b64decode(recorded["result"])
    result, before = Result.unpack(Kind(recorded["kind"]), frame), wire.Result.unpack(frame)
    now = wire.Result.unpack(result.pack())
    assert _known(now.items) == _known(before.items)
    assert sorted(now.blobs) == sorted(before.blobs)
    assert now.timings_ms == before.timings_ms


@pytest.mark.parametrize("number", range(len(RECORDED)))
def test_a_recorded_slice_is_read_whole(number: int) -> None:
    payload = base64.b64decode(RECORDED[number]["payload"])
    work, before = read_slice(payload), wire.read_slice(payload)
    [again] = cut(work.kind, work.params, work.items, max_items=1 << 30, max_bytes=1 << 30)
    now = wire.read_slice(again.payload)
    assert (now.kind, now.items) == (before.kind, before.items)
    assert now.params == before.params
