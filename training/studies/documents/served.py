"""A head of documents as a worker serves it: the graph of its folder, and what lies beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studies.documents.data import Document, batches
from verso_core import heads
from verso_training.heads import graph
from verso_training.heads.confidence import Outputs
from verso_training.heads.signals import Fitted


def outputs(folder: Path, documents: Sequence[Document], targets: NDArray[np.int64]) -> Outputs:
    """Return what the graph of a head's folder says of documents with these label numbers."""
    session = graph.session(folder / heads.GRAPH, {})
    logits, features = [], []
    for batch in batches(documents):
        feeds = {
            "vectors": batch.vectors, "mask": batch.mask,
            "terms": batch.terms, "weights": batch.weights,
        }  # fmt: skip
        found = session.run(None, {name: value.numpy() for name, value in feeds.items()})
        logits.append(found[0])
        features.append(found[1])
    return Outputs(np.concatenate(logits), np.concatenate(features), targets)


def statistics(folder: Path) -> Fitted:
    """Return the arrays of the confidence signals of a head's folder."""
    with np.load(folder / heads.SIGNALS) as arrays:
        return Fitted(**{name: arrays[name] for name in arrays.files} | {"k": int(arrays["k"])})
