"""A classifier of documents: the vectors of all chunks, the words' terms, and both together.

For a document with unit vectors v_1..v_K of its chunks, and terms t with weights w_t (BM25's,
summed over the chunks, see ``verso_core.heads``), and a source s of labels:

    a_k = softmax_k(q_s' v_k sqrt(D))                    attention over chunks, q_s learned
    u   = sqrt(D) (v_1, v_K, sum_k a_k v_k)              beginning, end, and what q_s looks for;
                                                         or sqrt(D) v_1 alone
    x_t = log(1 + w_t) idf_st, then x / |x|              TF-IDF
    z_s = W_2 gelu(W_1 u + b_1) + b_2,   y_s = T' x + b  one softmax each, over the source's labels

A term's row of T is its id modulo the number of buckets; it belongs to the most frequent such id of
the training rows, and other ids have no weight. Nor have terms that only one training row has: an
address or a number tells nothing of other rows, and its large idf would take all of the norm.

The probability of a label c of source s is that of the source times that of the label in it (a
softmax of two levels, Goodman 2001, section 3), where both readers are mixed by weights that
held-out rows choose:

    log p(c) = log p(s) + log softmax_c(alpha_s log softmax(z_s) + beta_s log softmax(y_s))

A row's loss is that of its own source: one source learns nothing from rows of another, and a shift
of one moves no label of another. Labels without a slash are of one source.

Fitting, for each source by itself:

1. the terms' layer, then the vectors' layers, by full-batch L-BFGS; validation rows choose penalty,
   class weights, width and u by the mean of accuracy and macro-F1, and end the training;
2. alpha and beta by the validation rows' likelihood;
3. the source's own layer on the training rows of all sources.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from verso_core.errors import Cancelled
from verso_core.heads import source_of
from verso_training.heads.confidence import macro_f1
from verso_training.heads.recipe import ClassifyConfig, ClassWeights
from verso_training.heads.vectors import OnProgress, Progress, ShouldStop, class_weights

_ROUND = 10
"""Iterations of L-BFGS between two evaluations of the validation rows."""
_TERMS_L2 = (0.1, 0.01, 0.001)
"""Penalties tried, of one row: the inverse of scikit-learn's C."""
_FEWEST = 2
"""Training rows of a term that counts."""
_MIX_STEPS = 60


@dataclass(frozen=True)
class Document:
    """What a head reads of a text: see ``verso_core.heads``.

    Attributes:
        vectors: Of its chunks; of none, it trains the layer on terms alone. Shape: (K, D), float32.
        terms: Ids. Shape: (M,), int64.
        weights: Of the terms. Shape: (M,), float32.
    """

    vectors: NDArray[np.float32]
    terms: NDArray[np.int64]
    weights: NDArray[np.float32]

    def inputs(self) -> dict[str, NDArray[np.generic]]:
        """Return the inputs of a graph, without the batch axis; one term of no weight at least."""
        vectors = self.vectors
        if not len(vectors):
            vectors = np.zeros((1, vectors.shape[1]), np.float32)
        return {
            "vectors": vectors,
            "mask": np.ones(len(vectors), np.float32),
            "terms": self.terms if len(self.terms) else np.zeros(1, np.int64),
            "weights": self.weights if len(self.terms) else np.zeros(1, np.float32),
        }


@dataclass(frozen=True)
class Batch:
    """Padded documents. Shapes: (B, K, D), (B, K), and twice (B, M)."""

    vectors: Tensor
    mask: Tensor
    terms: Tensor
    weights: Tensor

    @classmethod
    def of(cls, documents: Sequence[Document]) -> Batch:
        """Pad documents to the longest."""
        rows = [one.inputs() for one in documents]

        def padded(name: str) -> Tensor:
            longest = max(len(row[name]) for row in rows)
            wide = [
                np.pad(row[name], [(0, longest - len(row[name]))] + [(0, 0)] * (row[name].ndim - 1))
                for row in rows
            ]
            return torch.from_numpy(np.stack(wide))

        return cls(padded("vectors"), padded("mask"), padded("terms"), padded("weights"))


@dataclass(frozen=True)
class Part:
    """Documents and their label numbers."""

    documents: Sequence[Document]
    targets: NDArray[np.int64]

    def of(self, labels: range) -> Part:
        """Return the documents with these labels, numbered from 0."""
        found = self._take([i for i, target in enumerate(self.targets) if target in labels])
        return Part(found.documents, found.targets - labels.start)

    def encoded(self) -> Part:
        """Return the documents that have vectors."""
        return self._take([i for i, one in enumerate(self.documents) if len(one.vectors)])

    def _take(self, rows: Sequence[int]) -> Part:
        return Part([self.documents[i] for i in rows], self.targets[np.array(rows, np.int64)])


class ChunkReader(nn.Module):
    """Logits of one source's labels from the vectors of the chunks, or of the first alone."""

    def __init__(self, *, dim: int, classes: int, hidden: int, whole: bool = True) -> None:
        super().__init__()
        self.scale = dim**0.5
        self.query = nn.Parameter(torch.zeros(1, dim)) if whole else None
        wide = 3 * dim if whole else dim
        self.hidden = nn.Linear(wide, hidden) if hidden else None
        self.out = nn.Linear(hidden or wide, classes)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Shape: (B, K, D) and (B, K) to (B, C)."""
        x = vectors[:, 0] * self.scale
        if self.query is not None:
            x = torch.cat([x, self._others(vectors, mask, self.query) * self.scale], dim=-1)
        if self.hidden is not None:
            x = F.gelu(self.hidden(x))
        logits: Tensor = self.out(x)
        return logits

    def _others(self, vectors: Tensor, mask: Tensor, query: Tensor) -> Tensor:
        """What the query looks for, and the end. Shape: (B, 2 D)."""
        score = (vectors * query).sum(-1) * self.scale + (mask - 1.0) * 1e4
        attention = score.softmax(-1)
        after = torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], dim=-1)
        weight = torch.stack([attention, mask - after], dim=1)  # (B, 2, K)
        read = (weight.unsqueeze(-1) * vectors.unsqueeze(1)).sum(2)  # (B, 2, D)
        return read.flatten(1)


class DocumentClassifier(nn.Module):
    """Logits of all labels; the module of a head that reads documents.

    Attributes:
        sizes: Labels of each source, in the order of the labels.
    """

    def __init__(
        self, readers: Sequence[ChunkReader], *, sizes: Sequence[int], buckets: int
    ) -> None:
        super().__init__()
        self.readers = nn.ModuleList(readers)
        self.sizes = tuple(sizes)
        self.buckets = buckets
        rows, columns = max(1, buckets), sum(sizes) + len(sizes)
        self.table = nn.Parameter(torch.zeros(rows, columns))
        self.bias = nn.Parameter(torch.zeros(columns))
        # Of each source, and of all together, which tells the sources apart.
        self.idf = nn.Parameter(torch.zeros(rows, len(sizes) + 1))
        self.ids: Tensor
        self.register_buffer("ids", torch.full((rows,), -1, dtype=torch.int64))
        self.mix = nn.Parameter(torch.ones(2, len(sizes)))

    def words(self, terms: Tensor, weights: Tensor) -> list[Tensor]:
        """Logits of each source's labels, and of the sources. Shape: twice (B, M) to (B, C_s)."""
        widths = [*self.sizes, len(self.sizes)]
        bias = torch.split(self.bias, widths)
        if not self.buckets:
            return [one.expand(len(terms), -1) for one in bias]
        bucket = terms % self.buckets
        known = torch.log1p(weights) * (self.ids[bucket] == terms)
        found = []
        for one, idf, table in zip(
            bias, self.idf.unbind(-1), torch.split(self.table, widths, dim=-1), strict=True
        ):
            x = known * idf[bucket]
            x = x / (x * x).sum(-1, keepdim=True).clamp(min=1e-12).sqrt()
            found.append((x.unsqueeze(-1) * table[bucket]).sum(1) + one)
        return found

    def forward(
        self, vectors: Tensor, mask: Tensor, terms: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits, and the mean of the vectors as feature. Shape: (B, C) and (B, D)."""
        words = self.words(terms, weights)
        sources = words[-1].log_softmax(-1)
        found = []
        for number, reader in enumerate(self.readers):
            read = reader(vectors, mask).log_softmax(-1) * self.mix[0, number]
            if self.buckets:
                read = read + words[number].log_softmax(-1) * self.mix[1, number]
            found.append(read.log_softmax(-1) + sources[:, number : number + 1])
        mean = (vectors * mask.unsqueeze(-1)).sum(1)
        feature = mean / (mean * mean).sum(-1, keepdim=True).clamp(min=1e-12).sqrt()
        return torch.cat(found, dim=-1), feature


def sources_of(labels: Sequence[str]) -> dict[str, range]:
    """Return the label numbers of each source; ``labels`` are sorted, so they are neighbours."""
    found: dict[str, range] = {}
    for number, label in enumerate(labels):
        source = source_of(label)
        start = found[source].start if source in found else number
        found[source] = range(start, number + 1)
    return found


@dataclass(frozen=True)
class _Watch:
    """Where a fit reports to, and the part of the whole work that it is."""

    on_progress: OnProgress
    should_stop: ShouldStop
    steps: int
    done: list[int]

    def step(self, **figures: float) -> None:
        if self.should_stop():
            raise Cancelled("the training was cancelled")
        self.done[0] += 1
        self.on_progress(Progress(min(1.0, self.done[0] / self.steps), figures))


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
    tried = len(_TERMS_L2) * 2 * bool(config.buckets) + 2 * len(config.l2) * len(widths)
    watch = _Watch(on_progress, should_stop, len(sources) * tried + 1, [0])
    ids = _known(train.documents, buckets=config.buckets)
    readers, tables = [], []
    for own in sources.values():
        part, held_out = train.of(own), validation.of(own)
        held_out = held_out if len(held_out.targets) else part
        classes = len(own)
        if config.buckets:
            tables.append(_fit_terms(part, held_out, classes=classes, ids=ids, watch=watch))
        read, seen = part.encoded(), held_out.encoded()
        if not (len(read.targets) and len(seen.targets)):
            readers.append(ChunkReader(dim=dim, classes=classes, hidden=0))
            continue
        readers.append(
            _fit_reader(config, read, seen, dim=dim, classes=classes, widths=widths, watch=watch)
        )
    sizes = [len(own) for own in sources.values()]
    model = DocumentClassifier(readers, sizes=sizes, buckets=config.buckets)
    if config.buckets:
        tables.append(_fit_sources(train, list(sources.values()), ids=ids))
        with torch.no_grad():
            model.ids.copy_(torch.from_numpy(ids))
            model.table.copy_(torch.cat([one.table for one in tables], dim=-1))
            model.bias.copy_(torch.cat([one.bias for one in tables]))
            model.idf.copy_(torch.stack([one.idf for one in tables], dim=-1))
        _mix(model, readers, validation, list(sources.values()))
    watch.step()
    return model.eval()


@torch.inference_mode()
def outputs(
    model: DocumentClassifier, documents: Sequence[Document]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return logits and features, in the order of the documents. Shape: (N, C) and (N, D)."""
    logits, features = [], []
    for batch in _batches(documents):
        found = model(batch.vectors, batch.mask, batch.terms, batch.weights)
        logits.append(found[0].numpy())
        features.append(found[1].numpy())
    return np.concatenate(logits), np.concatenate(features)


def _batches(documents: Sequence[Document], *, size: int = 64) -> Iterable[Batch]:
    for start in range(0, len(documents), size):
        yield Batch.of(documents[start : start + size])


@dataclass(frozen=True)
class _Words:
    """A layer on terms. Shapes: (buckets,), (buckets, C), (C,)."""

    idf: Tensor
    table: Tensor
    bias: Tensor


def _known(documents: Sequence[Document], *, buckets: int) -> NDArray[np.int64]:
    """Return the id that each bucket belongs to, -1 for none. Shape: (buckets,)."""
    found = np.full(max(1, buckets), -1, np.int64)
    if not buckets:
        return found
    count = Counter(int(term) for one in documents for term in one.terms)
    for term, times in sorted(count.items(), key=lambda row: (row[1], row[0])):
        if times >= _FEWEST:
            found[term % buckets] = term
    return found


def _idf(documents: Sequence[Document], *, ids: NDArray[np.int64]) -> Tensor:
    """Return ln((1 + N) / (1 + df)) + 1 of each bucket; 0 of terms of fewer than ``_FEWEST`` rows.

    Shape: (buckets,).
    """
    count = np.zeros(len(ids))
    for one in documents:
        bucket = one.terms % len(ids)
        count[bucket[ids[bucket] == one.terms]] += 1
    values = np.log((1.0 + len(documents)) / (1.0 + count)) + 1.0
    return torch.from_numpy(np.where(count >= _FEWEST, values, 0.0).astype(np.float32))


def _words(documents: Sequence[Document], *, ids: NDArray[np.int64], idf: Tensor) -> Tensor:
    """Return the terms x of documents as a sparse matrix. Shape: (N, buckets)."""
    rows, columns, values = [], [], []
    scale = idf.numpy()
    for row, one in enumerate(documents):
        bucket = one.terms % len(ids)
        kept = ids[bucket] == one.terms
        bucket = bucket[kept]
        x = np.log1p(one.weights[kept]) * scale[bucket]
        x /= max(1e-6, float(np.sqrt((x * x).sum())))
        rows.append(np.full(len(bucket), row))
        columns.append(bucket)
        values.append(x)
    place = torch.from_numpy(np.stack([np.concatenate(rows), np.concatenate(columns)]))
    found = torch.sparse_coo_tensor(
        place,
        torch.from_numpy(np.concatenate(values)),
        (len(documents), len(ids)),
        check_invariants=True,
    )
    return found.coalesce()


def _fit_terms(
    train: Part, held_out: Part, *, classes: int, ids: NDArray[np.int64], watch: _Watch
) -> _Words:
    """Return the layer on terms that the held-out rows choose."""
    idf = _idf(train.documents, ids=ids)
    x = _words(train.documents, ids=ids, idf=idf)
    held = _words(held_out.documents, ids=ids, idf=idf)
    best: tuple[float, Tensor, Tensor] | None = None
    for kind in (ClassWeights.SQRT, ClassWeights.BALANCED):
        for l2 in _TERMS_L2:
            table, bias = _linear(x, train.targets, classes=classes, kind=kind, l2=l2)
            reached = _score((torch.sparse.mm(held, table) + bias).numpy(), held_out.targets)
            watch.step(validation_score=reached)
            if best is None or reached > best[0]:
                best = reached, table, bias
    assert best is not None
    return _Words(idf, best[1], best[2])


def _fit_sources(train: Part, sources: Sequence[range], *, ids: NDArray[np.int64]) -> _Words:
    """Return the layer that tells the sources apart; zeros where there is one."""
    idf = _idf(train.documents, ids=ids)
    if len(sources) == 1:
        return _Words(idf, torch.zeros(len(ids), 1), torch.zeros(1))
    number = np.zeros(sources[-1].stop, np.int64)
    for source, labels in enumerate(sources):
        number[labels.start : labels.stop] = source
    x = _words(train.documents, ids=ids, idf=idf)
    table, bias = _linear(
        x, number[train.targets], classes=len(sources), kind=ClassWeights.BALANCED, l2=0.01
    )
    return _Words(idf, table, bias)


def _linear(
    x: Tensor, targets: NDArray[np.int64], *, classes: int, kind: ClassWeights, l2: float
) -> tuple[Tensor, Tensor]:
    """Multinomial logistic regression on a sparse matrix, by L-BFGS; ``l2`` is of one row."""
    y = torch.from_numpy(targets)
    weight = class_weights(targets, classes=classes, kind=kind)
    table = torch.zeros(x.shape[1], classes, requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    optimiser = torch.optim.LBFGS([table, bias], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = F.cross_entropy(torch.sparse.mm(x, table) + bias, y, weight=weight)
        loss = loss + 0.5 * l2 / len(y) * (table**2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return table.detach(), bias.detach()


def _fit_reader(
    config: ClassifyConfig,
    train: Part,
    held_out: Part,
    *,
    dim: int,
    classes: int,
    widths: Sequence[int],
    watch: _Watch,
) -> ChunkReader:
    """Return the reader of the chunks that the held-out rows choose."""
    weight = class_weights(train.targets, classes=classes, kind=config.class_weights)
    batch, held = Batch.of(train.documents), Batch.of(held_out.documents)
    y, held_y = torch.from_numpy(train.targets), torch.from_numpy(held_out.targets)
    best: tuple[float, ChunkReader] | None = None
    for whole, hidden in itertools.product((False, True), widths):
        for l2 in sorted(config.l2, reverse=True):
            model = ChunkReader(dim=dim, classes=classes, hidden=hidden, whole=whole)
            matrices = [p for p in model.parameters() if p.ndim == 2]

            def loss(
                model: ChunkReader = model, l2: float = l2, matrices: list[nn.Parameter] = matrices
            ) -> Tensor:
                found = F.cross_entropy(model(batch.vectors, batch.mask), y, weight=weight)
                return found + 0.5 * l2 * torch.stack([(m**2).sum() for m in matrices]).sum()

            def held_loss(model: ChunkReader = model) -> tuple[float, float]:
                logits = model(held.vectors, held.mask)
                return float(F.cross_entropy(logits, held_y)), _score(
                    logits.numpy(), held_out.targets
                )

            reached, kept = _rounds(model, loss, held_loss, config)
            watch.step(validation_score=reached)
            if best is None or reached > best[0]:
                best = reached, kept
    assert best is not None
    return best[1]


def _rounds(
    model: ChunkReader,
    loss: Callable[[], Tensor],
    held_loss: Callable[[], tuple[float, float]],
    config: ClassifyConfig,
) -> tuple[float, ChunkReader]:
    """Run L-BFGS until the held-out loss does not fall any more; return the best round."""
    optimiser = torch.optim.LBFGS(
        model.parameters(), max_iter=_ROUND, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    lowest, score, waited, kept = float("inf"), 0.0, 0, copy.deepcopy(model)
    for _ in range(max(1, config.iterations // _ROUND)):
        optimiser.step(closure)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            value, reached = held_loss()
        waited += 1
        if value < lowest - 1e-5:
            lowest, score, waited, kept = value, reached, 0, copy.deepcopy(model)
        if waited > config.patience:
            break
    return score, kept


def _mix(
    model: DocumentClassifier,
    readers: Sequence[ChunkReader],
    held_out: Part,
    sources: Sequence[range],
) -> None:
    """Set the weights of both readers, by the likelihood of each source's held-out rows."""
    for number, own in enumerate(sources):
        part = held_out.of(own).encoded()
        if not len(part.targets):
            model.mix.data[:, number] = torch.tensor([0.0, 1.0])  # no reader was trained
            continue
        with torch.no_grad():
            batches = list(_batches(part.documents))
            read = torch.cat([readers[number](b.vectors, b.mask) for b in batches])
            words = torch.cat([model.words(b.terms, b.weights)[number] for b in batches])
        read, words = read.log_softmax(-1), words.log_softmax(-1)
        y = torch.from_numpy(part.targets)
        log = torch.zeros(2, requires_grad=True)
        optimiser = torch.optim.LBFGS([log], lr=0.5, max_iter=_MIX_STEPS)

        def closure(
            log: Tensor = log,
            read: Tensor = read,
            words: Tensor = words,
            y: Tensor = y,
            optimiser: torch.optim.LBFGS = optimiser,
        ) -> Tensor:
            optimiser.zero_grad()
            weight = log.exp()
            # a weak prior at 1: without it a source with few rows could lose a reader for good
            loss = F.cross_entropy(weight[0] * read + weight[1] * words, y)
            loss = loss + (log**2).sum() / len(y)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimiser.step(closure)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            model.mix[:, number] = log.detach().exp().clamp(0.01, 20.0)


def _score(logits: NDArray[np.floating], targets: NDArray[np.int64]) -> float:
    """Mean of accuracy and macro-F1."""
    chosen = logits.argmax(-1)
    return 0.5 * (float((chosen == targets).mean()) + macro_f1(chosen, targets))
