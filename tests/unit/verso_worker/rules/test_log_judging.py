"""Streams of log lines and of texts are told apart, however many lines a request has."""

from __future__ import annotations

from verso_worker.rules.logs.ingest import JUDGED_LINES, Judge


def test_texts_are_judged_at_once_in_a_large_request_and_together_in_small_ones() -> None:
    judge = Judge()
    assert judge.is_text("large", lines=20_000, new=19_500)
    small = [judge.is_text("small", lines=100, new=98) for _ in range(JUDGED_LINES // 100 + 2)]
    assert small == [False] * (JUDGED_LINES // 100) + [True, True]


def test_a_system_that_boots_or_writes_many_statements_is_no_text() -> None:
    judge = Judge()
    assert not judge.is_text("boot", lines=1000, new=950)
    assert not judge.is_text("mac", lines=JUDGED_LINES, new=JUDGED_LINES * 46 // 100)


def test_a_stream_of_texts_may_become_one_of_lines_again() -> None:
    judge = Judge()
    assert judge.is_text("one", lines=5000, new=5000)
    assert judge.is_text("one", lines=5000, new=2500)
    assert not judge.is_text("one", lines=5000, new=100)
    assert not judge.is_text("other", lines=5000, new=100)
