"""A text counts by its best sentence, or by its best passage where the head reads passages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from verso_core.heads import Reads, Task, TextUnit
from verso_core.jobs import Kind, Slice
from verso_core.jobs.heads.score import PairScore, ScoreItem, ScoreParams
from verso_worker.records.outputs import Timings
from verso_worker.rules.ports.models import Heads, ServedHead
from verso_worker.rules.score import Score

TEXT = "Caf\u00e9 \U0001f469 opens at nine. The disk sda is full of logs. Nothing else to say here."
OTHER = "Not a word of it in this one."


class WordCount:
    """A head that scores how often its second text says the first."""

    def __init__(self, text_unit: TextUnit | None) -> None:
        self.about = {"head": "words", "version": "0" * 16, "channel": "stable"}
        self.head = SimpleNamespace(reads=Reads.TOKEN_PAIR, text_unit=text_unit)
        self.model = SimpleNamespace(cutter=SimpleNamespace(tokens=lambda text: len(text.split())))
        self.read: list[bytes] = []

    def run(self, call: Callable[[Any, str, str], Any]) -> Any:
        return call(self, "words", "0" * 16)

    def score_texts(
        self, name: str, version: str, *, first: Sequence[bytes], second: Sequence[bytes]
    ) -> NDArray[np.float32]:
        self.read += second
        return np.array([b.count(a) for a, b in zip(first, second, strict=True)], np.float32)


def scored(head: WordCount, **params: Any) -> list[PairScore]:
    class Served:
        def get(self, name: str, *, task: Task, job: str | None) -> ServedHead:
            return cast(ServedHead, head)

    items = [ScoreItem.of(b"disk", text.encode()) for text in (TEXT, OTHER)]
    work = Slice(Kind.SCORE, ScoreParams(head="words", **params), tuple(items))
    found = Score(cast(Heads, Served())).run(work, job=None, timings=Timings())
    return cast("list[PairScore]", list(found.items))


def test_evidence_is_the_sentence_that_counted_in_every_count() -> None:
    best, none = scored(WordCount(None), sentences=True)
    place = best.evidence
    assert place is not None
    assert (best.score, none.score) == (1.0, 0.0)
    sentence = "The disk sda is full of logs."
    assert TEXT[place.start : place.end] == sentence
    assert TEXT.encode()[place.start_byte : place.end_byte].decode() == sentence
    assert (place.start_utf16, place.end_utf16) == (TEXT.index("The") + 1, TEXT.index(" Not") + 1)


@pytest.mark.parametrize("unit", [None, TextUnit.SENTENCE])
def test_a_head_reads_sentences_where_it_does_not_say_otherwise(unit: TextUnit | None) -> None:
    scored(head := WordCount(unit), sentences=True)
    assert len(head.read) == 4


def test_a_head_that_reads_passages_is_given_passages() -> None:
    [best, _] = scored(head := WordCount(TextUnit.PASSAGE), sentences=True)
    assert head.read == [TEXT.encode(), OTHER.encode()]
    assert best.evidence is not None
    assert (best.evidence.start, best.evidence.end) == (0, len(TEXT))


def test_a_pair_that_is_scored_whole_has_no_evidence() -> None:
    scores = scored(WordCount(TextUnit.PASSAGE))
    assert [one.public().get("evidence") for one in scores] == [None, None]
