"""A decoder trained further on a collection is one that the worker loads, writes and reads with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from verso_core import manifest
from verso_core.errors import ArtifactInvalid, RequestInvalid
from verso_core.jobs import Precision
from verso_core.record import Codec
from verso_training.artifact import collection, tuning, weights
from verso_training.config import Budget
from verso_worker.engine.loading import load_service
from verso_worker.records.artifact import byte_codecs, cutter
from verso_worker.records.neural import NeuralCodec
from verso_worker.records.space import Space

ARTIFACT = Path(__file__).parents[3] / "data" / "artifact-tiny"
WORDS = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty")


def sentences(count: int) -> list[bytes]:
    rng = np.random.default_rng(4)
    return [
        "the {} lies behind the {} near the {}".format(*rng.choice(WORDS, 3)).encode()
        for _ in range(count)
    ]


def ticks() -> Callable[[], float]:
    """A clock that is a second later whenever it is asked: as many steps on every machine."""
    return itertools.count(0.0, 1.0).__next__


def budget(minutes: float = 2.0) -> Budget:
    return Budget(minutes, clock=ticks())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, collection.Report]:
    folder = tmp_path_factory.mktemp("models") / "valleys"
    with pytest.MonkeyPatch.context() as patch:
        # What one minute of a decoder this small is worth beside the mixture is of no interest.
        patch.setattr(collection, "WORTH", -10.0)
        report = collection.fit(
            ARTIFACT, sentences(240), folder=folder, name="valleys", budget=budget()
        )
    return folder, report


def test_the_trained_decoder_takes_less(trained: tuple[Path, collection.Report]) -> None:
    training = trained[1].training
    assert training is not None
    assert training.neural[1] < 0.7 * training.neural[0]
    assert training.kept
    assert training.measured == trained[1].held_out
    assert "trained on the others" in (trained[0] / "MODEL_CARD.md").read_text()


def test_the_space_stays_and_the_decoder_is_another(
    trained: tuple[Path, collection.Report],
) -> None:
    old, new = manifest.load(ARTIFACT).manifest, manifest.load(trained[0]).manifest
    assert new.space == old.space
    assert new.codec.epsilon == old.codec.epsilon
    changed = {name for name in old.files if new.files[name] != old.files[name]}
    assert {"memory.onnx", "decoder.onnx"} <= changed
    assert not changed & {"encoder.onnx", "decoder_tokenizer.json", "ngram.npz"}
    assert not list(trained[0].parent.glob(".valleys.*"))


def test_a_worker_writes_and_reads_with_it(trained: tuple[Path, collection.Report]) -> None:
    artifact = manifest.load(trained[0])
    service = load_service(artifact, threads=1)  # the golden samples run
    about = artifact.manifest.space
    space = Space(Precision.INT8, about.dim, about.int8_scale)
    codec = NeuralCodec(service, cutter(artifact))
    texts = [*sentences(250)[240:], b"something else altogether", b" ".join(sentences(20))]
    vectors = space.widen(space.round(service.encode(texts).vectors))
    offers = [offer for offer in codec.code(texts, vectors) if offer is not None]
    assert [offer[0] for offer in offers] == [Codec.NEURAL] * 11 + [Codec.SEGMENTED]
    assert codec.read(offers, vectors, disturbed=True) == texts
    assert set(byte_codecs(artifact)) == {Codec.ZSTD, Codec.NGRAM, Codec.MIXTURE}
    service.close()


def test_a_stopped_training_goes_on_where_it_was(tmp_path: Path) -> None:
    artifact, texts = manifest.load(ARTIFACT), sentences(60)

    def stopping() -> Iterator[float]:
        yield from map(float, range(50))
        raise KeyboardInterrupt

    first = Budget(2.0, clock=stopping().__next__)
    with pytest.raises(KeyboardInterrupt):
        tuning.trained(artifact, texts[:50], texts[50:], budget=first, work=tmp_path)
    state = torch.load(tmp_path / "run" / "state.pt", weights_only=True)
    reached = state["progress"]
    assert 0 < reached["step"] < reached["elapsed_s"] <= 50
    (tmp_path / "data" / "done").write_text("prepared once")
    gone_on = tuning.trained(artifact, texts[:50], texts[50:], budget=budget(), work=tmp_path)
    assert (tmp_path / "data" / "done").read_text() == "prepared once"
    assert gone_on.progress.step > reached["step"]
    assert gone_on.progress.elapsed_s >= 120
    # Other texts are another training.
    tuning.trained(artifact, texts[:40], texts[50:], budget=budget(0.1), work=tmp_path)
    assert (tmp_path / "data" / "done").read_text() == ""


def test_what_is_not_worth_having_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "WORTH", 1.0)
    folder = tmp_path / "new"
    report = collection.fit(ARTIFACT, sentences(60), folder=folder, name="new", budget=budget(0.1))
    assert report.training is not None
    assert not report.training.kept
    old, new = manifest.load(ARTIFACT).manifest, manifest.load(folder).manifest
    assert new.files["decoder.onnx"] == old.files["decoder.onnx"]
    assert new.files["ranks.npz"] == old.files["ranks.npz"]


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan"), float("inf")])
def test_no_time_is_refused(tmp_path: Path, minutes: float) -> None:
    with pytest.raises(RequestInvalid, match="minutes"):
        collection.fit(
            ARTIFACT, sentences(60), folder=tmp_path / "new", name="new", budget=budget(minutes)
        )
    assert not list(tmp_path.iterdir())


def test_texts_that_no_tokenizer_reads_are_refused(tmp_path: Path) -> None:
    texts = [b"\xff" + text for text in sentences(60)]
    with pytest.raises(RequestInvalid, match="UTF-8"):
        collection.fit(ARTIFACT, texts, folder=tmp_path / "new", name="new", budget=budget())


def test_weights_put_back_as_they_were_read_give_the_same_files(tmp_path: Path) -> None:
    about = manifest.load(ARTIFACT).manifest
    found = weights.decoder(ARTIFACT, about.codec, vector_dim=about.space.dim)
    weights.put(found, about.codec, graphs=ARTIFACT, folder=tmp_path)
    for name in weights.GRAPHS:
        assert (tmp_path / name).read_bytes() == (ARTIFACT / name).read_bytes()


def test_graphs_with_other_weights_than_were_read_are_refused(tmp_path: Path) -> None:
    """Two products change places: the shapes still fit, the logits do not."""
    for name in ("memory.onnx", "decoder.onnx"):
        (tmp_path / name).write_bytes((ARTIFACT / name).read_bytes())
    about = manifest.load(ARTIFACT).manifest
    dim = about.space.dim
    found = weights.decoder(tmp_path, about.codec, vector_dim=dim)
    assert found.config.layers == about.codec.layers
    model = onnx.load(tmp_path / "decoder.onnx")
    products = [node for node in model.graph.node if node.op_type == "MatMul"]
    stored = {one.name.removesuffix(".narrow"): one for one in model.graph.initializer}
    key, value = [node.input[1] for node in products if node.input[1] in stored][1:3]
    shapes = [numpy_helper.to_array(stored[name]).shape for name in (key, value)]
    assert shapes[0] == shapes[1]
    # The prefix in memory.onnx stays; only the order in this file is another.
    first = next(node for node in products if node.input[1] == key)
    second = next(node for node in products if node.input[1] == value)
    first.input[1], second.input[1] = value, key
    onnx.save(model, tmp_path / "decoder.onnx")
    with pytest.raises(ArtifactInvalid, match="logits"):
        weights.decoder(tmp_path, about.codec, vector_dim=dim)
