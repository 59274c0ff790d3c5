"""Texts as a worker stores them: cut into chunks, each with its vector and its terms.

Vectors take minutes of a core and are kept: one file a set and split, of what a collection stores
of all chunks one after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from studies.documents.data import Document
from verso_core import manifest
from verso_core.jobs import Precision
from verso_training.artifact.graphs import EncoderGraph
from verso_worker.records import outputs
from verso_worker.records.artifact import cutter
from verso_worker.records.space import Space, Stored
from verso_worker.rules.classification.subjects import read_chunks
from verso_worker.stores.bm25 import Bm25


def chunked(texts: Sequence[str], *, artifact: Path, most: int) -> list[list[bytes]]:
    """Cut texts as they would be stored; of a long one the chunks that a head reads."""
    cuts = cutter(manifest.load(artifact))
    return [list(read_chunks(cuts.cut(text.encode()), None, most)) for text in texts]


def documents(
    texts: Sequence[str],
    *,
    artifact: Path,
    cache: Path,
    most: int,
    every: int = 1,
    threads: int = 1,
    precision: Precision = Precision.INT8,
) -> list[Document]:
    """Return what a head reads of texts, encoded once and kept in ``cache``.

    Args:
        texts: To read.
        artifact: Whose cutter and encoder.
        cache: A file without ending; written where it does not exist or does not fit. One of
            another precision than int8 has the precision's name at its end.
        most: Chunks of a document that are read.
        every: The first of so many texts has vectors, of 0 none; the others have terms alone.
        threads: For the encoder.
        precision: Of the collection that stores them.
    """
    about = manifest.load(artifact).manifest.space
    space = Space(precision, about.dim, about.int8_scale)
    parts = chunked(texts, artifact=artifact, most=most)
    encoded = [every > 0 and number % every == 0 for number in range(len(parts))]
    flat = [chunk for own in itertools.compress(parts, encoded) for chunk in own]
    ending = "" if precision is Precision.INT8 else f"-{precision}"
    path = cache.with_name(f"{cache.name}{ending}.npy")
    if path.exists() and len(found := np.load(path)) == len(flat):
        codes = found
    else:
        codes = _codes(flat, space, artifact=artifact, threads=threads)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, codes)
    vectors = space.widen(codes)
    terms = iter(Bm25().documents([chunk for own in parts for chunk in own]))
    made, at = [], 0
    for own, has_vectors in zip(parts, encoded, strict=True):
        size = len(own) if has_vectors else 0
        one = outputs.Document.of(vectors[at : at + size], [next(terms) for _ in own])
        made.append(Document(one.vectors, one.terms, one.weights))
        at += size
    return made


def _codes(chunks: Sequence[bytes], space: Space, *, artifact: Path, threads: int) -> Stored:
    """Return what is stored of chunks; equal ones are encoded once. Shape: (N, width)."""
    if not chunks:
        return np.zeros((0, space.width), space.dtype)
    distinct = {chunk: number for number, chunk in enumerate(dict.fromkeys(chunks))}
    graph = EncoderGraph(artifact, threads=threads)
    codes = space.round(graph.encode([chunk.decode(errors="replace") for chunk in distinct]))
    found: Stored = codes[[distinct[chunk] for chunk in chunks]]
    return found
