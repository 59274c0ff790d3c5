"""The parts of the engine that answered benches rebuild still fit the engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from studies.benches.codecs import scoring
from studies.benches.rerank import interaction
from studies.benches.rerank.readings import readers
from studies.benches.rerank.reranking import Read
from studies.benches.serving import halves
from verso_core import manifest, registry
from verso_core.jobs.search import Hit
from verso_core.registry import Channel
from verso_worker.engine.sessions import Device, open_session

TESTS = Path(__file__).parents[2]
ARTIFACT = TESTS / "data" / "artifact-tiny"
HEADS = TESTS / "data" / "heads-tiny" / "heads"


def test_scores_cross_to_another_processor_and_back(tmp_path: Path) -> None:
    artifact = manifest.load(ARTIFACT)
    eos, dim = artifact.manifest.codec.eos, artifact.manifest.space.dim
    vectors = np.random.default_rng(1).normal(size=(3, dim)).astype(np.float32)
    samples = [
        scoring.Sample([*range(5, 5 + size), eos], vector)
        for size, vector in zip((3, 1, 6), vectors, strict=True)
    ]
    scoring.save_samples(samples, tmp_path / "samples.npz")
    back = scoring.load_samples(tmp_path / "samples.npz")
    assert [one.targets for one in back] == [one.targets for one in samples]
    whole, stepwise = (
        scoring.scored(artifact, back, scoring.Setting("basic", 1, way, 2))
        for way in ("whole", "stepwise")
    )
    scoring.save_scores(whole, tmp_path / "scores.npz")
    for sample, one, other, told in zip(
        samples, whole, stepwise, scoring.load_scores(samples, tmp_path / "scores.npz"), strict=True
    ):
        assert len(one.logits) == len(sample.targets)
        assert one.logits == pytest.approx(other.logits, abs=1e-3)
        assert (one.logits == told.logits).all()
        assert (one.confidence == told.confidence).all()


def test_a_rounded_graph_gives_numbers_of_float16_near_those_served() -> None:
    artifact = manifest.load(ARTIFACT)
    feeds = {"input_ids": np.arange(5, 17)[None], "attention_mask": np.ones((1, 12), np.int64)}
    exact, rounded = (
        open_session(graph, "encoder", threads=1, device=Device.CPU, optimisation="basic").run(
            ["vector"], feeds
        )[0]
        for graph in (artifact.data["encoder.onnx"], halves.rounded(artifact.data["encoder.onnx"]))
    )
    assert np.array_equal(rounded, rounded.astype(np.float16))
    assert not np.array_equal(exact, exact.astype(np.float16))
    assert rounded == pytest.approx(exact, abs=1e-3)


def test_shapes_are_counted_as_the_engine_batches() -> None:
    found = halves.shapes([20] * 40 + [100])
    assert (found["alone"], found["alone_few"]) == (2, 2)
    assert (found["batches"], found["batches_few"]) == (3, 3)  # 1 x 100, 25 x 20, 15 x 20
    assert found["alone_padding"] == (40 * 32 + 128) / (40 * 20 + 100)


def test_what_a_head_read_is_mixed_and_what_it_did_not_follows() -> None:
    found = [("a#0", 0.9), ("b#0", 0.8), ("a#1", 0.7), ("c#0", 0.6)]
    hits = [
        Hit(id=name, document=name[0], chunk=int(name[2]), score=score, text="")
        for name, score in found
    ]
    read = Read(hits, np.array([0.1, 0.3, 0.9], np.float32))
    assert read.documents(share=0.0) == ["a", "b", "c"]
    assert read.documents(share=1.0) == ["a", "b", "c"]
    assert Read(hits, np.array([0.1, 0.9, 0.3], np.float32)).documents(share=1.0) == ["b", "a", "c"]


def test_a_head_is_tried_in_every_way_that_it_can_read(tmp_path: Path) -> None:
    """What a text says behind the head's length is told by a longer copy and by its sentences."""
    models = tmp_path / "models"
    shutil.copytree(HEADS, models / "heads")
    shutil.copytree(ARTIFACT, models / "tiny")
    registry.assign(models, Channel.STABLE, "tiny")
    for name in ("alike", "pairs"):
        [version] = (models / "heads" / name).iterdir()
        registry.assign(models, Channel.STABLE, version.name, head=name)
    beside = "The first of the lines that are beside the question stands here. " * 5
    texts = [beside + "Nothing else is to be found.", beside + "Another thing is said behind."]
    with readers(models, ["alike", "pairs"], tokens=256) as (pairing, _, tried):
        found = {way.name: way.scores(pairing, "what is said behind?", texts) for way in tried}
    short, *others = (scores for name, scores in found.items() if name.startswith("pairs"))
    assert list(found)[:2] == ["alike, whole", "alike, best sentence"]
    assert short[0] == pytest.approx(short[1], abs=1e-6)
    assert [abs(scores[0] - scores[1]) > 1e-5 for scores in others] == [True, True]


def test_late_interaction_takes_each_token_at_its_nearest_and_leaves_the_special_ones_out() -> None:
    query = np.array([[9, 9], [2, 0], [0, 3], [-9, 9]], np.float32)
    text = np.array([[1, 1], [5, 0]], np.float32)
    assert interaction.late(query, text) == pytest.approx((1 + 2**-0.5) / 2)
    assert interaction.late(query, text[:1]) == pytest.approx(2**-0.5)


def test_feedback_asks_with_the_first_hits_by_their_scores() -> None:
    vectors = np.array([[1, 0], [0, 1], [-1, 0]], np.float32)
    found = interaction.fed_back(np.array([3, 4, 9], np.float32), vectors, first=2)
    assert found == pytest.approx([0.6, 0.8, -0.6])


def test_token_states_do_not_depend_on_the_texts_beside_and_end_where_they_must() -> None:
    from verso_training.heads import backbone

    base = backbone.load(ARTIFACT)
    texts = ["a worker and a record", "the queue", "the gateway restarts the worker and the cache"]
    together = interaction.states(base, texts, max_tokens=64)
    assert [len(one) for one in together] == [8, 4, 11]
    for text, found in zip(texts, together, strict=True):
        (alone,) = interaction.states(base, [text], max_tokens=64)
        assert found == pytest.approx(alone, abs=1e-5)
        assert found.mean(axis=0) / np.linalg.norm(found.mean(axis=0)) == pytest.approx(
            interaction.vector(alone), abs=1e-5
        )
    cut = interaction.states(base, texts, max_tokens=4)
    assert [len(one) for one in cut] == [4, 4, 4]
