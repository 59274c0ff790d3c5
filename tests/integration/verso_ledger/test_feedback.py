"""Labels that people have checked, on a real server."""

from __future__ import annotations

from verso_core.heads import Judged
from verso_ledger import Ledger, feedback


def test_rows_are_kept_by_version_and_a_text_counts_once(ledger: Ledger) -> None:
    ledger.feedback.add("kinds", "v1", {b"a": Judged("x", 0.5, right=True)})
    ledger.feedback.add("kinds", "v1", {b"b": Judged("", 0.25, right=False)})
    ledger.feedback.add("kinds", "v1", {b"a": Judged("\u00e9", 0.75, right=False)})
    found = ledger.feedback.rows("kinds", "v1")
    assert found == [Judged("", 0.25, right=False), Judged("\u00e9", 0.75, right=False)]
    assert ledger.feedback.rows("kinds", "v2") == []


def test_the_newest_rows_are_kept(ledger: Ledger) -> None:
    old = {f"old-{n}".encode(): Judged("", 0.0, right=False) for n in range(50)}
    new = {f"new-{n}".encode(): Judged("", 1.0, right=True) for n in range(feedback.MOST)}
    ledger.feedback.add("kinds", "v1", old)
    ledger.feedback.add("kinds", "v1", new)
    found = ledger.feedback.rows("kinds", "v1")
    assert len(found) == feedback.MOST
    assert all(one.right for one in found)
