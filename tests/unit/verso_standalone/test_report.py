"""The demo's report: what counts as passed, and views that tell when Verso takes more."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from verso_standalone.report import Report, SearchRun, Share

REPORT = Report(
    expected=3, texts=3, exact=3, verified=3, chunks=4, dim=384, precision="int8",
    bytes_text=1000, bytes_vectors=4 * 768, bytes_patches=200, bytes_entries=280, bytes_zstd=400,
    codecs={"neural": Share(3, 150), "zstd": Share(1, 50)},
    searches=[
        SearchRun("first", 1, 8.0, "a[0]", 0.9),
        SearchRun("third", 3, 9.0, "b", 0.8),
        SearchRun("none", None, 7.0, "c", 0.1),
    ],
    ingest_s=1.0, verify_s=0.5, restore_s=2.0, restored_tokens=500, seconds=9.0,
    machine={"cpus": 2},
)  # fmt: skip


def test_views_compare_real_bytes_of_both_sides() -> None:
    codec, usual, text = REPORT.views()
    assert (codec.verso_bytes, codec.rival_bytes) == (3072 + 280, 3072 + 400)
    assert (usual.verso_bytes, usual.rival_bytes) == (3352, 4 * 384 * 4 + 1000)
    assert (text.verso_bytes, text.rival_bytes) == (3352, 1000)
    assert codec.saved > 0
    assert text.saved < 0


def test_a_view_that_takes_more_says_so() -> None:
    console = Console(file=io.StringIO(), width=160)
    REPORT.show(console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "takes more" in shown
    assert "3/3" in shown
    assert "a[0]" in shown


def test_speeds_and_hits_are_counted() -> None:
    assert REPORT.restore_tokens_per_s == 250.0
    assert REPORT.restore_bytes_per_s == 500.0
    assert (REPORT.hits_at_1, REPORT.hits_at_10) == (1, 2)


@pytest.mark.parametrize(
    "changed",
    [{"exact": 2}, {"verified": 2}, {"texts": 2, "exact": 2, "verified": 2}, {"failed": ["a"]}],
)
def test_it_passes_only_when_all_is_exact_and_verified(changed: dict[str, object]) -> None:
    assert REPORT.passed
    assert not replace(REPORT, **changed).passed  # type: ignore[arg-type]


def test_the_json_has_the_keys_that_scripts_read() -> None:
    row = json.loads(REPORT.json())
    for key in (
        "texts", "exact", "bytes_text", "bytes_vectors", "bytes_patches", "codecs", "searches",
        "restore_tokens_per_s", "seconds", "views", "machine", "passed",
    ):  # fmt: skip
        assert key in row
    assert row["codecs"]["neural"] == {"records": 3, "bytes": 150}
