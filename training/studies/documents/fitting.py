"""Fit a classifier of documents, source by source."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from studies.documents.data import Part
from studies.documents.model import ChunkReader, DocumentClassifier
from studies.documents.readers import fit_reader, mix_readers
from studies.documents.selection import Watch
from studies.documents.terms import TERMS_L2, fit_sources, fit_terms, known_terms
from verso_core.heads import source_of
from verso_training.heads.recipe import ClassifyConfig
from verso_training.heads.vectors import OnProgress, ShouldStop


def fit(
    config: ClassifyConfig,
    *,
    train: Part,
    validation: Part,
    labels: Sequence[str],
    seed: int,
    on_progress: OnProgress,
    should_stop: ShouldStop,
) -> DocumentClassifier:
    """Return the classifier that validation chooses.

    Raises:
        Cancelled: ``should_stop`` returned True between two fits.
    """
    torch.manual_seed(seed)
    sources = sources_of(labels)
    dim = train.documents[0].vectors.shape[1]
    widths = sorted({0, config.hidden})
    tried = len(TERMS_L2) * 2 * bool(config.buckets) + 2 * len(config.l2) * len(widths)
    watch = Watch(on_progress, should_stop, len(sources) * tried + 1, [0])
    ids = known_terms(train.documents, buckets=config.buckets)
    readers, tables = [], []
    for own in sources.values():
        part, held_out = train.of(own), validation.of(own)
        held_out = held_out if len(held_out.targets) else part
        classes = len(own)
        if config.buckets:
            tables.append(fit_terms(part, held_out, classes=classes, ids=ids, watch=watch))
        read, seen = part.encoded(), held_out.encoded()
        if not (len(read.targets) and len(seen.targets)):
            readers.append(ChunkReader(dim=dim, classes=classes, hidden=0))
            continue
        readers.append(
            fit_reader(config, read, seen, dim=dim, classes=classes, widths=widths, watch=watch)
        )
    sizes = [len(own) for own in sources.values()]
    model = DocumentClassifier(readers, sizes=sizes, buckets=config.buckets)
    if config.buckets:
        tables.append(fit_sources(train, list(sources.values()), ids=ids))
        with torch.no_grad():
            model.ids.copy_(torch.from_numpy(ids))
            model.table.copy_(torch.cat([one.table for one in tables], dim=-1))
            model.bias.copy_(torch.cat([one.bias for one in tables]))
            model.idf.copy_(torch.stack([one.idf for one in tables], dim=-1))
        mix_readers(model, readers, validation, list(sources.values()))
    watch.step()
    return model.eval()


def sources_of(labels: Sequence[str]) -> dict[str, range]:
    """Return the label numbers of each source; ``labels`` are sorted, so they are neighbours."""
    found: dict[str, range] = {}
    for number, label in enumerate(labels):
        source = source_of(label)
        start = found[source].start if source in found else number
        found[source] = range(start, number + 1)
    return found
