"""A text gets exactly the scores of its stored document: both are read by the same vectors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import numpy as np
import pytest

from verso_core.heads import Calibration, Portion, Reads
from verso_core.jobs import Collection, Failed, Kind, Precision, Slice, TextPolicy
from verso_core.jobs.heads.classify import ClassifyItem, ClassifyParams
from verso_core.record import Codec, Entry, Record, point_ids
from verso_core.registry import Channel
from verso_worker.records.outputs import Classified, Document, Timings
from verso_worker.records.space import Space, Stored, Vector
from verso_worker.rules.classification.classify import Classify
from verso_worker.rules.classification.subjects import SubjectReader
from verso_worker.rules.ports.models import ServedHead

DIM, SCALE = 8, 50.0
TEXT = b"first part|second part|and a third"
RNG = np.random.default_rng(7)
ENCODED = RNG.uniform(-1, 1, (3, DIM)).astype(np.float32)
WEIGHTS = RNG.normal(0, 1, (DIM, 3)).astype(np.float32)
LABELS = ("a", "b", "c")


class Summing:
    """An engine whose head classifies by a document's vectors, or each vector; notes them."""

    def __init__(self, reads: Reads) -> None:
        self.reads = reads
        self.read: list[Vector] = []

    def encode(self, texts: Sequence[bytes]) -> Any:
        rows = [TEXT.split(b"|").index(text) for text in texts]
        return SimpleNamespace(vectors=ENCODED[rows])

    def classify_vectors(self, _: str, __: str, *, vectors: Vector) -> Classified:
        self.read.append(vectors)
        return Classified(vectors @ WEIGHTS, None)

    def classify_documents(self, _: str, __: str, *, documents: Sequence[Document]) -> Classified:
        self.read += [one.vectors for one in documents]
        return Classified(np.stack([one.vectors.sum(0) for one in documents]) @ WEIGHTS, None)

    @property
    def served(self) -> ServedHead:
        head = SimpleNamespace(
            name="sums",
            version="0" * 16,
            reads=self.reads,
            space="s",
            chunk=None,
            max_chunks=4 if self.reads is Reads.DOCUMENT else None,
            terms=False,
            labels=LABELS,
            none_label=None,
            calibration=Calibration(),
        )
        model = SimpleNamespace(
            dim=DIM,
            int8_scale=SCALE,
            cutter=SimpleNamespace(
                cut=lambda text: text.split(b"|"), first=lambda text: text.split(b"|")[0]
            ),
            recorder=SimpleNamespace(engine=self),
            heads=self,
        )
        return ServedHead(cast(Any, head), Path(), Channel.STABLE, cast(Any, model), None)


def collection(precision: Precision) -> Collection:
    return Collection(
        name="c",
        precision=precision,
        text_policy=TextPolicy.PATCH,
        space="s",
        dim=DIM,
        int8_scale=SCALE,
        artifacts=("a",),
        buckets=1,
        checksum_key="00",
        created=datetime.now(UTC),
    )


def scored(
    engine: Summing, where: Collection | None, portion: Portion | None = Portion.MEAN
) -> list[float]:
    """Return the scores of the text, or of its document in a collection."""
    entry = Entry(
        1, len(TEXT), tuple(Record(Codec.RAW, 0, bytes(8), b"sum.", b"") for _ in ENCODED)
    )
    kept: dict[UUID, Stored] = {}
    if where is not None:
        rounded = Space.of(where).round(ENCODED)
        kept = dict(zip(point_ids(where.name, "d", entry), rounded, strict=True))
    classify = Classify(
        SubjectReader(
            vectors=cast(Any, SimpleNamespace(get=lambda _, ids: {one: kept[one] for one in ids})),
            reader=cast(Any, SimpleNamespace(live=lambda _, ids: dict.fromkeys(ids, entry))),
            lexicon=cast(Any, None),
        ),
        heads=cast(Any, SimpleNamespace(get=lambda *_, **__: engine.served)),
        learned=cast(Any, SimpleNamespace(head=lambda head: head)),
    )
    params = ClassifyParams(heads=("sums", "the same again"), top_k=len(LABELS), chunk=portion)
    item = ClassifyItem(text=TEXT) if where is None else ClassifyItem(id="d")
    work = Slice(Kind.CLASSIFY, params, (item,))
    [found] = classify.run(work, where, job=None, timings=Timings()).items
    assert not isinstance(found, Failed)
    first, again = (sorted(head.scores, key=lambda one: one.label) for head in found.heads)
    assert first == again
    return [one.score for one in first]


@pytest.mark.parametrize("portion", [Portion.MEAN, None])
@pytest.mark.parametrize("reads", [Reads.VECTOR, Reads.DOCUMENT])
def test_a_text_has_exactly_the_scores_of_its_stored_document(
    reads: Reads, portion: Portion | None
) -> None:
    as_text, as_stored = Summing(reads), Summing(reads)
    stored = scored(as_stored, collection(Precision.INT8), portion)
    assert scored(as_text, None, portion) == stored
    np.testing.assert_array_equal(np.concatenate(as_text.read), np.concatenate(as_stored.read))
    assert not np.array_equal(np.concatenate(as_text.read), ENCODED)


@pytest.mark.parametrize("reads", [Reads.VECTOR, Reads.DOCUMENT])
def test_a_document_of_another_precision_is_read_as_it_is_stored(reads: Reads) -> None:
    engine = Summing(reads)
    scores = scored(engine, collection(Precision.FLOAT16))
    kept = ENCODED.astype(np.float16)
    np.testing.assert_array_equal(np.concatenate(engine.read), np.concatenate([kept, kept]))
    assert scores == pytest.approx(scored(Summing(reads), None), abs=0.1)
