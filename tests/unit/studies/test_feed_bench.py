"""What the bench of the feed asks: probes that are new, and goals that are compared rightly."""

from __future__ import annotations

import random

import bench_feed_platform
import fuzz_feed
import pytest

from verso_worker.rules.grouping.templates import Miner


def test_each_probe_is_a_statement_of_its_own() -> None:
    texts = [text for text, _ in bench_feed_platform.probes()]
    miner = Miner(similar=0.8, words=16)
    for text in texts:
        miner.add(text)
    assert len(set(miner.templates())) == len(texts) == 512
    assert len({question for _, question in bench_feed_platform.probes()}) == 512


def test_goals_are_compared_with_the_agent_that_keeps_up() -> None:
    kept = {"lines/s": 5100.0, "tail s": 0.4, "searchable s": 3.0}
    slow = {"lines/s": 900.0, "tail s": 9.0, "searchable s": 90.0}
    results = {
        "bulk, kept up": slow,
        "otlp, kept up": kept,
        "bulk, as fast as it goes": {**slow, "lines/s": 9000.0},
        "one-line p99 ms": 150.0,
        "ledger bytes beyond a text": 90.0,
    }
    found = bench_feed_platform.reached(results)
    missed = [
        name
        for name, goal in bench_feed_platform.GOALS.items()
        if not bench_feed_platform.is_met(found[name], goal)
    ]
    assert missed == ["one-line p99 ms"]


@pytest.mark.parametrize("name", sorted(fuzz_feed.DECODERS))
def test_bodies_that_are_made_up_and_damaged_cost_themselves(name: str) -> None:
    """A few of those that ``make fuzz`` tries for minutes; findings stand beside the decoders."""
    rng = random.Random(11)
    for _ in range(30):
        assert fuzz_feed.failure(rng, name) is None
