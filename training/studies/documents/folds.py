"""Fit a source's layers on all of its rows, and say what such layers say of rows held out.

Rows that drift together, such as those of a project, are a fold. A row's log probabilities are
those of layers that no row of its fold was fitted on: the layers that ship are fitted on all rows,
and would be sure of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from studies.documents.data import Part
from studies.documents.model import ChunkReader
from studies.documents.readers import ReaderSettings, Said, fit_reader, read_logits
from studies.documents.terms import TermLayer, TermSettings, fit_terms, term_logits
from verso_training.heads.recipe import ClassifyConfig, Folds

_HISTORY = 1 / 3
"""Share of the rows that the first fold held out has before it, at least."""


@dataclass(frozen=True)
class SourceFit:
    """How the layers of a source are fitted.

    Attributes:
        ids: The id that each bucket belongs to. Shape: (buckets,).
        classes: Labels of the source.
    """

    config: ClassifyConfig
    terms: TermSettings
    reader: ReaderSettings
    ids: NDArray[np.int64]
    classes: int

    def layers(self, rows: Part) -> tuple[TermLayer, ChunkReader]:
        """Fit both layers."""
        terms = fit_terms(rows, self.terms, classes=self.classes, ids=self.ids)
        return terms, fit_reader(self.config, rows, self.reader, classes=self.classes)

    def held_out(self, rows: Part, kind: Folds) -> tuple[list[int], Said]:
        """Return which rows are held out once, and what layers fitted without them say."""
        places: list[int] = []
        read, words = [], []
        for fitted, held in parts(rows.folds, kind):
            terms, reader = self.layers(rows.take(fitted))
            own = rows.take(held)
            places += held
            read.append(read_logits(reader, own))
            words.append(term_logits(terms, own, ids=self.ids).log_softmax(-1))
        targets = torch.from_numpy(rows.targets[np.array(places)])
        return places, Said(torch.cat(read), torch.cat(words), targets)


def parts(folds: Sequence[str | None], kind: Folds) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the rows to fit on and the rows held out, a fold after the other.

    Args:
        folds: Of each row; rows without one are never held out.
        kind: Whether a fold is held out from all others or from those before it. Of the latter,
            folds with less than a third of the rows before them are not held out.
    """
    names = sorted({fold for fold in folds if fold is not None})
    for name in names:
        held = [row for row, fold in enumerate(folds) if fold == name]
        if kind is Folds.OTHERS:
            fitted = [row for row, fold in enumerate(folds) if fold != name]
        else:
            fitted = [row for row, fold in enumerate(folds) if fold is None or fold < name]
        if fitted and (kind is Folds.OTHERS or len(fitted) >= _HISTORY * len(folds)):
            yield fitted, held
