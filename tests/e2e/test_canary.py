"""A canary that was made worse in one respect withdraws itself from a running platform.

Each is sound in every other respect, and the reason in the registry names the one. How many jobs it
takes is left to the platform: a busy machine slows both versions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.conftest import HEADS, publish_heads
from tests.support.worse_models import other_encoder, slow_decoder, slow_head, swapped_head

from verso_client import Client, Document
from verso_core import registry
from verso_core.jobs import CodecPolicy, CollectionKind
from verso_core.jobs.logs.lines import LinesRequest
from verso_core.jobs.registry import RolloutState
from verso_core.registry import Channel

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform

[STABLE] = (HEADS / "kinds").iterdir()
REQUEST = "2026-03-04T05:06:07Z INFO gateway[812]: request 0badcafe finished in %d ms"
RETRY = "2026-03-04T05:06:07Z WARN keeper: worker %d of 8 timed out, retry in 4 s"
PRODUCTS = 250
"""Products of matrices that make a graph slow: tens of times the work of the small models."""
PATIENCE_S = 600.0  # only a canary that is never withdrawn takes so long


@pytest.fixture(scope="module")
def target(new_platform: Callable[..., Platform]) -> Platform:
    """A platform with heads, on which canaries are tried."""
    platform = new_platform(VERSO_VERIFY_DELAY_S="0.1", VERSO_RAW_TEXT_RETENTION_S="0")
    platform.start()
    publish_heads(platform)
    return platform


@pytest.fixture(scope="module")
def verso(target: Platform) -> Iterator[Client]:
    """A client of that platform."""
    with target.client() as client:
        yield client


def until_withdrawn(
    verso: Client, call: Callable[[int], object], *, canary: str, head: str | None = None
) -> RolloutState:
    """Make calls until a canary is withdrawn; return what the registry says of its rollout."""
    deadline = time.monotonic() + PATIENCE_S
    number = 0
    while True:
        state = verso.registry()
        rollout = state.artifact if head is None else state.heads[head]
        if rollout.withdrawn is not None and rollout.withdrawn.version == canary:
            return rollout
        assert time.monotonic() < deadline, f"{canary} stays: {rollout.comparison}"
        for _ in range(5):
            call(number)
            number += 1


def reason(rollout: RolloutState) -> str:
    assert rollout.withdrawn is not None
    assert rollout.canary is None
    return rollout.withdrawn.reason


def texts(number: int) -> list[str]:
    return [REQUEST % number, RETRY % number]


def test_a_head_that_takes_labels_for_each_other_is_found_by_what_it_says(
    verso: Client, target: Platform
) -> None:
    models = target.data / "models"
    canary = swapped_head(STABLE, models, one="request", other="retry")
    registry.assign(models, Channel.CANARY, canary, head="kinds", share=1.0)
    rollout = until_withdrawn(
        verso, lambda n: verso.classify("kinds", texts=texts(n)), canary=canary, head="kinds"
    )
    assert "it differs from the stable version on 100% of the texts" in reason(rollout)
    [first, _] = verso.classify("kinds", texts=texts(0))
    assert first.heads[0].label == "request"
    assert first.heads[0].version == STABLE.name


def test_a_head_that_is_wrong_is_found_by_the_labels_that_come_back(
    verso: Client, target: Platform
) -> None:
    """Nothing is asked of it, so nothing but its score can tell."""
    models = target.data / "models"
    canary = swapped_head(STABLE, models, one="request", other="frame")
    registry.assign(models, Channel.CANARY, canary, head="kinds", share=1.0)
    rollout = until_withdrawn(
        verso,
        lambda n: verso.feedback("kinds", ["request", "retry"], texts=texts(n)),
        canary=canary,
        head="kinds",
    )
    assert reason(rollout).startswith("its Brier score on ")
    assert "worse by more than 0.05" in reason(rollout)


def test_a_head_that_is_slow_and_right_is_found_by_its_latency(
    verso: Client, target: Platform
) -> None:
    models = target.data / "models"
    canary = slow_head(STABLE, models, products=PRODUCTS)
    registry.assign(models, Channel.CANARY, canary, head="kinds", share=1.0)
    said: list[str | None] = []

    def classify(number: int) -> None:
        said.extend(item.heads[0].label for item in verso.classify("kinds", texts=texts(number)))

    rollout = until_withdrawn(verso, classify, canary=canary, head="kinds")
    assert reason(rollout).startswith("its p95 is ")
    assert "longer by more than 50%" in reason(rollout)
    assert said == ["request", "retry"] * (len(said) // 2)


def test_an_artifact_whose_decoder_is_slow_is_found_by_its_latency(
    verso: Client, target: Platform
) -> None:
    """Its records are as exact as the stable one's, and stay readable once it is withdrawn."""
    models = target.data / "models"
    slow_decoder(target.artifact, models / "slow", products=PRODUCTS)
    verso.create_collection("tried", codec_policy=CodecPolicy.SMALLEST)
    registry.assign(models, Channel.CANARY, "slow", share=1.0)
    taken: dict[str, bytes] = {}

    def ingest(number: int) -> None:
        name, text = f"line/{number}", RETRY % number
        assert verso.ingest([Document(text, id=name)], collection="tried").failed == ()
        taken[name] = text.encode()

    rollout = until_withdrawn(verso, ingest, canary="slow")
    assert reason(rollout).startswith("its p95 is ")
    assert "longer by more than 50%" in reason(rollout)
    target.await_verified("tried", len(taken))
    assert target.read_all("tried", list(taken)) == taken


def test_what_a_canary_wrote_of_lines_stays_when_it_goes(
    verso: Client, target: Platform, variant: Callable[..., Path]
) -> None:
    """It gives statements their vectors, and records to what no block takes."""
    models = target.data / "models"
    verso.create_collection("lines", kind=CollectionKind.LOGS)
    stable = verso.stats("lines").artifacts
    variant(models / "another", 7)
    registry.assign(models, Channel.CANARY, "another", share=1.0)
    deadline = time.monotonic() + PATIENCE_S
    while not all(_serves(worker, "another") for worker in verso.registry().workers):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    long = "2026-03-04T05:06:08Z TRACE " + "at frame.of(a.Stack:12) " * 400
    whole = "".join(f"{row}\n" for n in range(40) for row in (*texts(n), f"{long}{n}"))
    verso.ingest_lines([whole.encode()], collection="lines")
    target.await_verified("lines", 120)
    assert set(verso.stats("lines").artifacts) > set(stable), "the canary wrote the records"
    before = verso.search("a request has finished", collection="lines").hits
    for channel in (None, "another"):  # withdrawn, and then tried again
        registry.assign(models, Channel.CANARY, channel, share=1.0)
        while all(_serves(worker, "another") for worker in verso.registry().workers) != (
            channel is not None
        ):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        asked = LinesRequest(collection="lines", limit=0, raw=True)
        assert target.read_lines(asked) == whole.encode()
        assert verso.search("a request has finished", collection="lines").hits == before
    registry.assign(models, Channel.CANARY, None)


def _serves(worker: Mapping[str, Any], name: str) -> bool:
    """Return whether a worker said that an artifact is its canary."""
    return name in str(worker["artifact"].get("canary"))


def test_an_artifact_with_another_encoder_is_no_canary(verso: Client, target: Platform) -> None:
    """So an artifact's canary agrees on vectors: its encoder has the hash of the stable one's."""
    models = target.data / "models"
    other_encoder(target.artifact, models / "other")
    registry.assign(models, Channel.CANARY, "other", share=1.0)
    rollout = until_withdrawn(verso, lambda _: time.sleep(0.1), canary="other")
    assert "expected a canary of space" in reason(rollout)
