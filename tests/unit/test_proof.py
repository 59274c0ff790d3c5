"""The page of the long proof says what its rows say, and adds up over runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.chaos.proof_page import page
from tests.chaos.prove import PAGE, Results, broken

LINES = {"acknowledged": 800, "unanswered": 0, "read": 800, "lost": 0, "doubled": 0, "unknown": 0}
ROUND: dict[str, Any] = {
    "kills": 3,
    "faults": 4,
    "jobs": 50,
    "documents": 70,
    "lost": 0,
    "twice": 0,
    "broken": [],
    "minutes": 1.0,
    "recovery_s": {"kill shard": [1.0, 3.0], "full disk": [2.5], "kill valkey": [4.0]},
    "lines": LINES,
    "samples": [{"s": 5.0, "worker MiB": 100.0}, {"s": 10.0, "worker MiB": 120.0}],
}


def test_rows_of_several_runs_add_up(tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    for _ in range(2):
        results = Results(path)
        results.add("faults", results.seed(), ROUND)
    assert [row["seed"] for row in Results(path).rows] == [1, 2]
    written = path.with_suffix(".md").read_text(encoding="utf-8")
    assert written == page(Results(path).rows)
    assert "| faults of a platform under load | 8 |" in written
    assert "| lines acknowledged | 1,600 |" in written
    assert "| kill vector store | 4 | 2.0 | 3.0 |" in written
    assert "| kill ledger | 2 | 4.0 | 4.0 |" in written
    assert "less than the proof's aim" in written


def test_one_line_that_is_lost_or_doubled_fails_the_proof() -> None:
    assert not broken({"part": "faults", **ROUND})
    for what in ("lost", "doubled"):
        assert broken({"part": "faults", **ROUND, "lines": LINES | {what: 1}})
    assert broken({"part": "faults", **ROUND, "broken": ["a promise"]})
    assert broken({"part": "simulation", "wrong": "step 3"})
    assert broken({"part": "power cuts", "passed": False})


def test_the_page_in_the_docs_is_that_of_its_rows() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(Results(PAGE.with_suffix(".json")).rows)
