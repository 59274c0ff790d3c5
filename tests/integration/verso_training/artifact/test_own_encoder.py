"""A user's own sentence encoder becomes an artifact that a worker loads, writes and reads with."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from numpy.testing import assert_allclose
from tests.support import tiny_artifact
from tests.support.untrained_encoder import untrained
from tokenizers import Tokenizer

from verso_core import manifest
from verso_core.errors import ArtifactInvalid, RequestInvalid
from verso_training import encoder
from verso_training.artifact import export, own_encoder
from verso_training.config import Budget, Storage
from verso_training.pooling import Pooling
from verso_worker.engine.loading import load_service

BASE = Path(__file__).parents[3] / "data" / "artifact-tiny"
WIDTH = 64
TEXTS = [document.text for document in tiny_artifact.documents(count=420, seed=11)]


def write_encoder(folder: Path, *, pooling: str = "cls_token") -> Path:
    """Write a small random encoder as sentence-transformers writes one."""
    own, tokenizer = untrained(TEXTS, width=WIDTH, seed=3)
    own.bert.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    modes = {f"pooling_mode_{name}": name == pooling for name in ("cls_token", "mean_tokens")}
    modes[f"pooling_mode_{pooling}"] = True
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoders") / "small")


@pytest.fixture(scope="module")
def made(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "own"
    ticks = itertools.count(0.0, 1.0).__next__
    report = own_encoder.make(
        BASE, folder, [text.encode() for text in TEXTS], folder=out, budget=Budget(0.1, clock=ticks)
    )
    assert report.dim == WIDTH
    assert not list(out.parent.glob(".*")), "the work folder is gone"
    return out


def test_its_space_is_its_own(made: Path) -> None:
    old, new = manifest.read(BASE).space, manifest.read(made).space
    assert new.id != old.id
    assert (new.dim, new.pooling) == (WIDTH, "cls")
    assert "small" in (made / "MODEL_CARD.md").read_text()


def test_a_worker_checks_its_golden_samples_and_encodes_as_torch_does(
    made: Path, folder: Path
) -> None:
    own, tokenizer = encoder.load_own(folder)
    expected = encoder.encode(own, tokenizer, texts=TEXTS[:8])
    with closing(load_service(manifest.load(made), threads=1)) as service:
        found = service.encode([text.encode() for text in TEXTS[:8]]).vectors
    assert_allclose(np.sum(found * expected.astype(np.float32), 1), 1.0, atol=1e-3)


@pytest.fixture(scope="module")
def states(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The graph of an encoder's token states."""
    own, _ = encoder.load_own(folder)
    assert isinstance(own, encoder.SentenceEncoder)
    path = tmp_path_factory.mktemp("states") / "model.onnx"
    write_graph(own, path)
    return path.read_bytes()


@pytest.mark.parametrize("pooling", list(Pooling))
def test_a_graph_is_pooled_as_a_module_is(
    pooling: Pooling, folder: Path, states: bytes, tmp_path: Path
) -> None:
    own, tokenizer = encoder.load_own(folder)
    assert isinstance(own, encoder.SentenceEncoder)
    (tmp_path / "model.onnx").write_bytes(states)
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    (tmp_path / "1_Pooling").mkdir()
    mode = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}[pooling]
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{mode}": True}))
    own.pooling = pooling
    graph, words = encoder.load_own(tmp_path)
    expected = encoder.encode(own, tokenizer, texts=TEXTS[:5])
    assert_allclose(encoder.encode(graph, words, texts=TEXTS[:5]), expected, atol=2e-3)
    path = tmp_path / "encoder.onnx"
    export.export_encoder(graph, path, storage=Storage.FLOAT32)
    ids, mask = encoder.padded([words.encode(TEXTS[0]).ids])
    (vector,) = export.session(path).run(
        ["vector"], {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
    )
    assert_allclose(vector[0], expected[0], atol=2e-3)


def write_graph(own: encoder.SentenceEncoder, path: Path) -> None:
    """Write the graph of token states, as exporters of sentence encoders do."""

    class States(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            found = own.bert(input_ids=input_ids, attention_mask=attention_mask)
            states: torch.Tensor = found.last_hidden_state
            return states

    ids = torch.randint(5, 100, (3, 7))
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    model = export.traced(
        States(), (ids, torch.ones_like(ids)), path,
        inputs=["input_ids", "attention_mask"], outputs=["last_hidden_state"],
        dynamic=(axes, axes),
    )  # fmt: skip
    onnx.save(model, path)


def test_a_prompt_is_read_before_every_text(folder: Path) -> None:
    plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompted = encoder.with_prompt(plain, "query: ")
    for text in (*TEXTS[:5], ""):
        assert prompted.encode(text).ids == plain.encode(f"query: {text}").ids


def refused() -> Iterator[tuple[str, str]]:
    yield "modules.json", json.dumps([{"type": "sentence_transformers.models.Dense", "path": "2"}])
    yield "1_Pooling/config.json", json.dumps({"pooling_mode_lasttoken": True})
    yield "1_Pooling/config.json", "{"
    yield "model.safetensors", ""


@pytest.mark.parametrize(("file", "content"), list(refused()))
def test_what_cannot_be_served_is_refused(file: str, content: str, tmp_path: Path) -> None:
    own = write_encoder(tmp_path / "broken")
    (own / file).write_text(content)
    with pytest.raises(ArtifactInvalid):
        encoder.load_own(own)


def test_an_empty_folder_and_few_texts_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactInvalid, match=r"model\.safetensors or model\.onnx"):
        encoder.load_own(tmp_path)
    with pytest.raises(RequestInvalid, match="at least"):
        own_encoder.make(BASE, folder, [b"one"], folder=tmp_path / "own", budget=Budget(1))
