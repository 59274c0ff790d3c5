"""Fit a classifier of documents, source by source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from studies.documents.data import Part
from studies.documents.folds import SourceFit
from studies.documents.model import ChunkReader, DocumentClassifier, outputs
from studies.documents.readers import (
    Said,
    choose_reader,
    mixing_weights,
    read_logits,
)
from studies.documents.selection import Watch
from studies.documents.terms import (
    TERMS_L2,
    TermLayer,
    choose_terms,
    fit_sources,
    known_terms,
    term_logits,
)
from verso_core.heads import source_of
from verso_training.heads.confidence import Outputs
from verso_training.heads.recipe import ClassifyConfig
from verso_training.heads.vectors import OnProgress, ShouldStop


@dataclass(frozen=True)
class HeldOut:
    """What is said of rows that no layer was fitted on.

    Attributes:
        outputs: Of these rows.
        rows: Number of each among the validation rows; -1 for a training row. Shape: (N,).
    """

    outputs: Outputs
    rows: NDArray[np.int64]


def fit(
    config: ClassifyConfig,
    *,
    train: Part,
    validation: Part,
    labels: Sequence[str],
    seed: int,
    on_progress: OnProgress,
    should_stop: ShouldStop,
) -> tuple[DocumentClassifier, HeldOut | None]:
    """Return the classifier that validation chooses, and what is said of rows held out.

    The latter is None where no fold was held out: no layer is fitted on validation rows then.

    Raises:
        Cancelled: ``should_stop`` returned True between two fits.
    """
    torch.manual_seed(seed)
    sources = sources_of(labels)
    widths = sorted({0, config.hidden})
    tried = len(TERMS_L2) * 2 * bool(config.buckets) + 2 * len(config.l2) * len(widths)
    watch = Watch(on_progress, should_stop, len(sources) * tried + 1, [0])
    ids = known_terms(train.documents, buckets=config.buckets)
    fitted = [
        _fit_source(
            config, name, train.of(own), validation.of(own), classes=len(own), ids=ids, watch=watch
        )
        for name, own in sources.items()
    ]
    sizes = [len(own) for own in sources.values()]
    model = DocumentClassifier([one.reader for one in fitted], sizes=sizes, buckets=config.buckets)
    if config.buckets:
        tables = [one.terms for one in fitted if one.terms is not None]
        tables.append(fit_sources(train, list(sources.values()), ids=ids))
        with torch.no_grad():
            model.ids.copy_(torch.from_numpy(ids))
            model.table.copy_(torch.cat([one.table for one in tables], dim=-1))
            model.bias.copy_(torch.cat([one.bias for one in tables]))
            model.idf.copy_(torch.stack([one.idf for one in tables], dim=-1))
            model.mix.copy_(torch.stack([one.mix for one in fitted], dim=-1))
    watch.step()
    model.eval()
    if all(one.held is None for one in fitted):
        return model, None
    return model, _held_out(model, fitted, list(sources.values()), train, validation)


@dataclass(frozen=True)
class _Fitted:
    """The layers of one source.

    Attributes:
        terms: None where no words are read.
        mix: Weights of both readers. Shape: (2,).
        places: Of the source's rows, training rows first, those held out from the layers that say
            the following.
        held: What was said of these; None: no fold was held out.
    """

    reader: ChunkReader
    terms: TermLayer | None
    mix: Tensor
    places: tuple[int, ...] = ()
    held: Said | None = None


def _fit_source(
    config: ClassifyConfig,
    name: str,
    train: Part,
    validation: Part,
    *,
    classes: int,
    ids: NDArray[np.int64],
    watch: Watch,
) -> _Fitted:
    """Fit the layers of one source."""
    held_out = validation if len(validation) else train
    terms = None
    if config.buckets:
        terms, chosen_terms = choose_terms(train, held_out, classes=classes, ids=ids, watch=watch)
    read, seen = train.encoded(), held_out.encoded()
    if not (len(read) and len(seen)):
        dim = train.documents[0].vectors.shape[1]
        return _Fitted(ChunkReader(dim=dim, classes=classes, hidden=0), terms, _WORDS_ALONE)
    reader, chosen_reader = choose_reader(
        config, read, seen, classes=classes, widths=sorted({0, config.hidden}), watch=watch
    )
    if terms is None:
        return _Fitted(reader, terms, torch.ones(2))
    if not len(validation.encoded()):
        return _Fitted(reader, terms, _WORDS_ALONE)
    if name in config.folds:
        source = SourceFit(config, chosen_terms, chosen_reader, ids, classes)
        rows = train + validation
        # What folds draw leaves the layers of the next sources as they are without folds.
        with torch.random.fork_rng(devices=[]):
            places, held = source.held_out(rows, config.folds[name])
            terms, reader = source.layers(rows)
        return _Fitted(reader, terms, mixing_weights(held), tuple(places), held)
    words = term_logits(terms, seen, ids=ids).log_softmax(-1)
    said = Said(read_logits(reader, seen), words, torch.from_numpy(seen.targets))
    return _Fitted(reader, terms, mixing_weights(said))


_WORDS_ALONE = torch.tensor([0.0, 1.0])


def _held_out(
    model: DocumentClassifier,
    fitted: Sequence[_Fitted],
    sources: Sequence[range],
    train: Part,
    validation: Part,
) -> HeldOut:
    """Return what is said of rows that no layer was fitted on.

    Of a source without folds these are its validation rows. Training rows among the others have no
    feature: references of the confidence signals are drawn from them.
    """
    found, numbers = [], []
    for own, layers in zip(sources, fitted, strict=True):
        rows, known = validation.of(own), 0
        number = np.flatnonzero(np.isin(validation.targets, own))
        if layers.held is not None:
            known = len(train.of(own))
            rows = (train.of(own) + rows).take(layers.places)
            number = np.append(np.full(known, -1), number)[np.array(layers.places)]
        if not len(rows):
            continue
        logits, features = outputs(model, rows.documents)
        if layers.held is not None:
            inside = slice(own.start, own.stop)
            total = torch.from_numpy(logits[:, inside]).logsumexp(-1, keepdim=True)
            said = layers.mix[0] * layers.held.read + layers.mix[1] * layers.held.words
            logits[:, inside] = (said.log_softmax(-1) + total).numpy()
            features[np.array(layers.places) < known] = 0.0
        folds = rows.folds if layers.held is not None else ()
        numbers.append(number)
        found.append(
            Outputs(
                logits,
                features,
                rows.targets + own.start,
                folds=np.array([folds[i] or "" if folds else "" for i in range(len(rows))]),
            )
        )
    return HeldOut(Outputs.joined(found), np.concatenate(numbers))


def sources_of(labels: Sequence[str]) -> dict[str, range]:
    """Return the label numbers of each source; ``labels`` are sorted, so they are neighbours."""
    found: dict[str, range] = {}
    for number, label in enumerate(labels):
        source = source_of(label)
        start = found[source].start if source in found else number
        found[source] = range(start, number + 1)
    return found
