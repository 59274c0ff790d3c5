"""The remote encoder beside the same graph run locally."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from tokenizers import Tokenizer
from verso_sentence_transformers import VersoEncoder
from verso_sentence_transformers.encoder import Vectors

from verso_client import Client

ARTIFACT = Path(__file__).parents[2] / "models" / "default"
SENTENCES = [
    "The certificate of the mail server expires on the third of May.",
    "The night shift restarts the print server at two o'clock.",
    "disk sda: cannot write block 273",
    "Rain is expected in the afternoon.",
    "Die Festplatte ist voll.",
    "A user could not log in because the clock was wrong.",
]
QUERIES = {
    "q0": "When does the certificate expire?",
    "q1": "printing at night",
    "q2": "disk error",
    "q3": "weather",
    "q4": "full disk",
    "q5": "login fails",
}


class LocalEncoder(VersoEncoder):
    """The graph of the default artifact, run in this process."""

    def __init__(self) -> None:
        super().__init__()
        self._graph = onnxruntime.InferenceSession(str(ARTIFACT / "encoder.onnx"))
        self._tokenizer = Tokenizer.from_file(str(ARTIFACT / "encoder_tokenizer.json"))
        self._tokenizer.enable_padding()
        self._tokenizer.enable_truncation(256)

    def _vectors(self, texts: Sequence[str], together: int) -> Vectors:
        encoded = self._tokenizer.encode_batch(list(texts))
        ids = np.array([one.ids for one in encoded], np.int64)
        mask = np.array([one.attention_mask for one in encoded], np.int64)
        [found] = self._graph.run(["vector"], {"input_ids": ids, "attention_mask": mask})
        return np.asarray(found, np.float32)


def test_vectors_are_those_of_the_artifact(client: Client) -> None:
    remote = VersoEncoder(client)
    assert remote.get_sentence_embedding_dimension() == 384
    found = remote.encode(SENTENCES)
    assert found.dtype == np.float32
    assert np.abs(found - LocalEncoder().encode(SENTENCES)).max() < 1e-5
    assert np.abs(remote.encode(SENTENCES[0]) - found[0]).max() < 1e-5
    cut = remote.encode(SENTENCES, truncate_dim=64)
    assert cut.shape == (6, 64)
    assert np.allclose(np.linalg.norm(cut, axis=1), 1)
    assert len(remote.encode(SENTENCES, convert_to_numpy=False)) == 6
    assert np.allclose(remote.similarity_pairwise(found, found), 1)
    assert remote.encode([]).shape == (0, 384)
    with pytest.raises(ValueError, match="no prompts"):
        remote.encode("a", prompt_name="query")


def test_an_evaluator_gives_both_the_same_figures(client: Client) -> None:
    queries: dict[str, Any] = dict(QUERIES)
    corpus: dict[str, Any] = {f"d{n}": text for n, text in enumerate(SENTENCES)}
    relevant = {name: {f"d{n}"} for n, name in enumerate(QUERIES)}
    evaluator = InformationRetrievalEvaluator(queries, corpus, relevant, name="lines")
    evaluate: Callable[[Any], dict[str, float]] = evaluator  # by its methods, not by its class
    here, there = evaluate(LocalEncoder()), evaluate(VersoEncoder(client))
    assert here.keys() == there.keys()
    for name, figure in here.items():
        assert abs(figure - there[name]) < 1e-5, name
