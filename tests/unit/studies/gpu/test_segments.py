"""Segments share the vector of the chunk that they are cut from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
from tests.support.untrained_encoder import untrained

from studies.gpu import segments
from verso_training import config, encoder
from verso_training.data import dataset
from verso_training.data.sources import Document, Split


def test_all_segments_of_a_chunk_have_its_vector_and_fit_the_decoder(tmp_path: Path) -> None:
    long = [" ".join(f"the worker {at * n} waits." for at in range(60)) for n in range(1, 9)]
    recipe = config.load("tiny")
    recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, max_tokens=48))
    prepared, folder = tmp_path / "prepared", tmp_path / "made"
    prepared.mkdir()
    dataset.fit(long, vocab=300).save(str(prepared / "tokenizer.json"))
    documents = [
        Document("made-up", "made-up", f"{split}:{n}", f"{split} {text}", split)
        for split in Split
        for n, text in enumerate(long)
    ]
    model, words = untrained(long, dim=32)
    segments.prepare(
        recipe, documents, prepared=prepared, folder=folder, sentence_encoder=(model, words)
    )
    for split in Split:
        found = dataset.load(folder, split)
        assert found.lengths().max() < 48
        same = [
            at
            for at in range(1, len(found))
            if np.array_equal(found.vectors[at - 1], found.vectors[at])
        ]
        assert same, split  # chunks of several segments
        assert len(same) < len(found) - 1  # and others
        at = same[0]
        both = found.chunks[at - 1].text + found.chunks[at].text
        assert any(both in document.text for document in documents)
        own = encoder.encode(model, words, texts=[found.chunks[at].text])
        assert not np.array_equal(own[0], found.vectors[at])
