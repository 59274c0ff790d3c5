"""Stages of generations, and which of them writes a slice."""

from __future__ import annotations

from verso_core.jobs.fitting import (
    CANARY_SHARE,
    Fitting,
    Generation,
    GenerationStage,
    artifact_of,
)


def generations(**stages: GenerationStage) -> Fitting:
    return Fitting(
        generations=tuple(
            Generation(id=f"codec.{name}", stage=stage, bytes=1, level=1.0, fitted=0.0)
            for name, stage in stages.items()
        )
    )


def test_a_canary_writes_its_share_of_the_slices() -> None:
    fitting = generations(a=GenerationStage.SERVING, b=GenerationStage.CANARY)
    written = [fitting.writes("codec", seq=seq) for seq in range(4000)]
    assert set(written) == {"codec.a", "codec.b"}
    assert abs(written.count("codec.b") / 4000 - CANARY_SHARE) < 0.03


def test_tables_of_another_artifact_do_not_write() -> None:
    fitting = generations(a=GenerationStage.SERVING, b=GenerationStage.CANARY)
    assert {fitting.writes("other", seq=seq) for seq in range(100)} == {None}


def test_tables_that_ended_do_not_write() -> None:
    fitting = generations(a=GenerationStage.RETIRED, b=GenerationStage.WITHDRAWN)
    assert {fitting.writes("codec", seq=seq) for seq in range(100)} == {None}


def test_one_that_serves_retires_the_one_that_served() -> None:
    fitting = generations(a=GenerationStage.SERVING, b=GenerationStage.CANARY)
    after = fitting.staged("codec.b", GenerationStage.SERVING, now=5.0)
    assert [(one.stage, one.ended) for one in after.generations] == [
        (GenerationStage.RETIRED, 5.0),
        (GenerationStage.SERVING, None),
    ]


def test_one_that_was_withdrawn_never_serves() -> None:
    fitting = generations(b=GenerationStage.CANARY)
    gone = fitting.staged("codec.b", GenerationStage.WITHDRAWN, now=5.0)
    assert gone.staged("codec.b", GenerationStage.SERVING, now=6.0) == gone


def test_a_slot_names_an_artifact_with_or_without_a_generation() -> None:
    assert artifact_of("codec") == artifact_of("codec.hash") == "codec"
