"""Do heads on vectors say the same of a collection of four bits a dimension as of an int8 one?

Heads are trained and calibrated on vectors as an int8 collection stores them, and a text that is
sent to be classified is rounded so too. Here the test rows of the heads' cards, and questions that
sentences are ranked for, are read as each precision stores them. Nothing is fitted or chosen;
differences are paired over the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studies.documents import served
from studies.intents import outliers
from studies.papers.kept import table
from studies.quality import pairsets, rankings, selection, sets, shipped, similarity
from studies.quality.classification import Bench
from studies.quality.rankings import Ranked
from verso_core import heads, manifest
from verso_core.errors import HeadInvalid
from verso_core.heads import Head, Reads, source_of
from verso_core.jobs import Precision
from verso_training.heads import confidence, graph, signals
from verso_training.heads.confidence import Decided, Outputs, Refusals
from verso_training.heads.confidence.reports import exact
from verso_training.heads.rows import RowSplit
from verso_training.heads.scoring import spearman
from verso_training.heads.signals import Interval

BASE, OTHER = Precision.INT8, Precision.INT4
_ROUNDS = 2000
_STRANGE = 200
"""Texts of each kind that no intent is meant by, as in the head's card."""

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Pair = Mapping[Precision, Interval]


@dataclass(frozen=True)
class Source:
    """Test rows of one source at both precisions, shares; each gain is that of the coarser one.

    Attributes:
        rows: How many there are.
        same: Of how many the label is the same.
        moved: Median and largest change of the confidence.
        accuracy: By precision.
        accuracy_gain: Paired.
        macro_f1: By precision.
        macro_f1_gain: Paired.
        error: Calibration error by precision.
        accepted: Requested error rate -> share accepted and errors among it, by precision.
    """

    rows: int
    same: int
    moved: tuple[float, float]
    accuracy: Pair
    accuracy_gain: Interval
    macro_f1: Pair
    macro_f1_gain: Interval
    error: Pair
    accepted: Mapping[str, Mapping[Precision, tuple[Interval, Interval]]]


@dataclass(frozen=True)
class Scope:
    """What is given a label in scope: by kind of text, at both precisions."""

    kinds: Mapping[str, Mapping[Precision, Refusals]]
    right: Pair


def documents(folder: Path, bench: Bench) -> dict[str, Source]:
    """Compare what a head that reads documents says of its test rows, by source."""
    found = {
        precision: shipped.outputs_of(
            folder, RowSplit.TEST, data=bench.data, artifact=bench.artifact, work=bench.work,
            precision=precision,
        )
        for precision in (BASE, OTHER)
    }  # fmt: skip
    head = heads.load(folder).head
    of_label = np.array([source_of(label) for label in head.labels])
    said = {
        precision: _decided(head, outputs, folder, outside=None)
        for precision, outputs in found.items()
    }
    gold = found[BASE].targets
    return {
        source: compared(said, gold, np.flatnonzero(of_label[gold] == source))
        for source in sorted(set(of_label[gold].tolist()))
    }


def intents(folder: Path, bench: Bench) -> tuple[Source, Scope]:
    """Compare what a head of intents says of questions, and of texts that mean no intent."""
    head = heads.load(folder).head
    assert head.none_label is not None
    outside = head.labels.index(head.none_label)
    said, kinds = {}, {}
    for precision in (BASE, OTHER):
        test, strange = _read(head, folder, bench, precision)
        asked = test.take(np.flatnonzero(test.targets == outside))
        strange["questions out of scope"] = (asked.logits, asked.features)
        said[precision] = _decided(head, test, folder, outside=outside)
        kinds[precision] = confidence.refusals(
            test, strange, head.calibration, served.statistics(folder), outside=outside
        )
    gold = test.targets
    within = np.flatnonzero(gold != outside)

    def right(of: Decided) -> Interval:
        return _interval(lambda i: _mean(of.right[within[i]]), len(within))

    return compared(said, gold, np.arange(len(gold))), Scope(
        {kind: {p: own[kind] for p, own in kinds.items()} for kind in kinds[BASE]},
        {precision: right(of) for precision, of in said.items()},
    )


def _read(
    head: Head, folder: Path, bench: Bench, precision: Precision
) -> tuple[Outputs, dict[str, tuple[Floats, Floats]]]:
    """Return what a head says of CLINC150's test questions, and of further texts by kind."""
    session = graph.session(folder / heads.GRAPH, {})

    def read(texts: Sequence[str], name: str) -> tuple[Floats, Floats]:
        vectors = sets.stored_vectors(
            texts,
            artifact=bench.artifact,
            cache=bench.work / "vectors" / name,
            scale=manifest.load(bench.artifact).manifest.space.int8_scale,
            precision=precision,
        )
        logits, *features = session.run(None, {"vector": vectors})
        return logits, features[0] if features else vectors

    rows = sets.clinc(bench.data).of(RowSplit.TEST)
    targets = np.array([head.labels.index(row.label) for row in rows], np.int64)
    said = read([str(row.text) for row in rows], f"intent_clinc150-{RowSplit.TEST}")
    return Outputs(*said, targets), {
        kind: read(own, f"strange-{_STRANGE}-{kind.replace(' ', '_')}")
        for kind, own in outliers.strange(bench.data, each=_STRANGE).items()
    }


def cosines(bench: Bench) -> tuple[dict[str, dict[str, Ranked]], tuple[Pair, Interval]]:
    """Compare rankings of sentences by the cosine, and its rank correlation on STS-B."""
    ranked = {
        name: rankings.compared(
            {
                str(precision): selection.places(
                    similarity.cosines(bench, name, own, precision=precision), own
                )
                for precision in (BASE, OTHER)
            }
        )
        for name, own in selection.reported(bench.data).items()
    }
    rows = pairsets.stsb(bench.data, "test")
    gold = np.array([row.score for row in rows])
    scores = {
        precision: similarity.stored_cosines(bench, rows, part="test", precision=precision)
        for precision in (BASE, OTHER)
    }

    def correlation(of: Floats) -> Callable[[Rows], float]:
        return lambda i: 100 * spearman(of[i], gold[i])

    gain = _interval(
        lambda i: correlation(scores[OTHER])(i) - correlation(scores[BASE])(i), len(rows)
    )
    return ranked, (
        {name: _interval(correlation(own), len(rows)) for name, own in scores.items()},
        gain,
    )


def compared(said: Mapping[Precision, Decided], gold: Rows, rows: Rows) -> Source:
    """Return the figures of some rows.

    Args:
        said: Of all rows, by precision.
        gold: Their label numbers. Shape: (N,).
        rows: Numbers of those that count.
    """
    base, other = said[BASE], said[OTHER]
    moved = np.abs(base.sure[rows] - other.sure[rows])

    def f1(of: Decided) -> Callable[[Rows], float]:
        return lambda i: confidence.macro_f1(of.chosen[rows[i]], gold[rows[i]])

    def right(of: Decided) -> Callable[[Rows], float]:
        return lambda i: _mean(of.right[rows[i]])

    def pair(measure: Callable[[Decided], Callable[[Rows], float]]) -> tuple[Pair, Interval]:
        own = {name: _interval(measure(one), len(rows)) for name, one in said.items()}
        first, second = measure(base), measure(other)
        return own, _interval(lambda i: second(i) - first(i), len(rows))

    accuracy, accuracy_gain = pair(right)
    macro_f1, macro_f1_gain = pair(f1)
    return Source(
        rows=len(rows),
        same=int((base.chosen[rows] == other.chosen[rows]).sum()),
        moved=(float(np.median(moved)), float(moved.max())),
        accuracy=accuracy,
        accuracy_gain=accuracy_gain,
        macro_f1=macro_f1,
        macro_f1_gain=macro_f1_gain,
        error={
            name: confidence.calibration_error(one.sure[rows], one.right[rows], rounds=_ROUNDS)
            for name, one in said.items()
        },
        accepted={
            rate: {name: _accepted(one, rate, rows) for name, one in said.items()}
            for rate in base.kept
        },
    )


def _accepted(of: Decided, rate: str, rows: Rows) -> tuple[Interval, Interval]:
    """Return the share that is accepted and the errors among it."""
    kept = of.kept[rate][rows]
    wrong = int((~of.right[rows][kept]).sum())
    return exact(int(kept.sum()), of=len(rows)), exact(wrong, of=int(kept.sum()))


def _decided(head: Head, outputs: Outputs, folder: Path, *, outside: int | None) -> Decided:
    return confidence.decided(
        outputs, head.calibration, served.statistics(folder), labels=head.labels, outside=outside
    )[1]


def _interval(measure: Callable[[Rows], float], count: int) -> Interval:
    return signals.bootstrap(measure, count, rounds=_ROUNDS)


def _mean(flags: NDArray[np.bool_]) -> float:
    return float(flags.mean())


def study(folder: Path, bench: Bench) -> str:
    """Return the tables of a head that reads vectors."""
    reads = heads.load(folder).head.reads
    if reads is Reads.DOCUMENT:
        return sources_page(documents(folder, bench))
    if reads is Reads.VECTOR:
        whole, scope = intents(folder, bench)
        return "\n\n".join([sources_page({"all": whole}), scope_page(scope)])
    if reads is Reads.VECTOR_PAIR:
        return cosines_page(*cosines(bench))
    raise HeadInvalid(f"expected a head that reads vectors, got one that reads {reads}")


def sources_page(found: Mapping[str, Source]) -> str:
    """Return the tables of classifications."""
    columns = [
        *("source", "rows", "accuracy, int8", "int4", "gain", "macro-F1, int8", "int4", "gain"),
        *("ECE, int8", "int4", "same label", "confidence moves, median", "most"),
    ]
    rows = [
        [
            *(f"`{name}`", f"{one.rows:,}"),
            *(_shown(one.accuracy[p]) for p in (BASE, OTHER)),
            _shown(one.accuracy_gain, "+"),
            *(_shown(one.macro_f1[p]) for p in (BASE, OTHER)),
            _shown(one.macro_f1_gain, "+"),
            *(_shown(one.error[p]) for p in (BASE, OTHER)),
            *(f"{one.same:,}", *(f"{100 * value:.1f}" for value in one.moved)),
        ]
        for name, one in found.items()
    ]
    rates = list(next(iter(found.values())).accepted)
    kept = [
        [f"`{name}`, {p}", *(_kept(*one.accepted[rate][p]) for rate in rates)]
        for name, one in found.items()
        for p in (BASE, OTHER)
    ]
    return "\n\n".join(
        [table(columns, rows), table(["source", *(f"≤ {float(r):.0%}" for r in rates)], kept)]
    )


def scope_page(found: Scope) -> str:
    """Return the table of what is given an intent."""
    columns = ["texts", "rows", "given, int8", "given, int4", "AUROC, int8", "AUROC, int4"]
    rows = [
        [
            *(kind, f"{own[BASE].rows:,}"),
            *(_shown(own[p].given) for p in (BASE, OTHER)),
            *("" if (a := own[p].auroc) is None else _shown(a) for p in (BASE, OTHER)),
        ]
        for kind, own in found.kinds.items()
    ]
    right = ", ".join(f"{p} {_shown(own)}" for p, own in found.right.items())
    return f"{table(columns, rows)}\n\nright intent of questions in scope: {right}"


def cosines_page(
    ranked: Mapping[str, Mapping[str, Ranked]], correlated: tuple[Pair, Interval]
) -> str:
    """Return the table of rankings and the correlations."""
    pair, gain = correlated
    own = ", ".join(f"{p} {_shown(one, scale=1)}" for p, one in pair.items())
    line = f"STS-B: {own}, gain {_shown(gain, '+', scale=1)}"
    return f"{rankings.page(ranked)}\n\n{line}"


def _shown(found: Interval, sign: str = "", *, scale: float = 100) -> str:
    value, low, high = (scale * one for one in (found.value, found.low, found.high))
    return f"{value:{sign}.1f} [{low:.1f}, {high:.1f}]"


def _kept(share: Interval, wrong: Interval) -> str:
    if not share.value:
        return f"none (at most {100 * share.high:.1f})"
    return f"{_shown(share)}: {_shown(wrong)}"
