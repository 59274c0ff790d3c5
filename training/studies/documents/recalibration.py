"""Why the confidence of a head is off on later rows, and what checked labels change.

The expected calibration error (ECE) of a source's test rows, as served, beside four others:

    by chance       the confidences are exact: what so few rows have all the same
    one number      the log odds are moved so that their mean is the share of right rows: what is
                    left if the error were only that the head is too sure, or not sure enough
    two numbers     offset and scale are fitted: what is left by any correction of this kind; rows
                    are scored by those of the other nine tenths, so it can be larger than the other
    all validation  offset and scale are of all validation rows that are taken for the source;
                    as served they are of one half, since the other half has chosen the thresholds
    N labels        people have checked N of the rows: the calibration that a worker serves then
                    (``POST /v1/feedback``), on the other rows; mean over draws

Beside these, what the head would say if it were told the source: the labels of that source alone
are read.

The gap is the mean confidence minus the share of right rows; unlike the ECE it is not above zero
by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from studies.documents import served
from studies.papers.kept import table
from verso_core import heads
from verso_core.heads import Calibration, Head, Judged, Signal, source_of
from verso_training.heads import confidence, signals
from verso_training.heads.confidence import Decided, Outputs
from verso_training.heads.signals import Flags, Floats, Interval, Signals
from verso_worker.records.confidence import learned

_ROUNDS = 2000
_DRAWS = 200
_SPLITS = 60
CHECKED = (50, 100)
"""Labels that people have checked."""
_PARTS = 10


@dataclass(frozen=True)
class Recalibrated:
    """Figures of one source's test rows, shares.

    Attributes:
        rows: How many there are.
        error: Calibration error as served.
        chance: Its median and 95th percentile by chance.
        gap: Mean confidence minus the share of right rows.
        one_number: Calibration error after the best offset.
        two_numbers: After the offset and scale of the other rows.
        all_validation: After the offset and scale of all validation rows.
        more_rows: By how much the log loss of a tenth of the validation rows held out is lower if
            nine tenths are fitted and not a half; mean over draws, with the middle 95 % of them.
        told: Accuracy and macro-F1 among the labels of the source alone.
        labels: Checked labels -> error of the other rows, its median by chance, and their gap: the
            mean over draws, with the middle 95 % of the draws.
    """

    rows: int
    error: Interval
    chance: tuple[float, float]
    gap: Interval
    one_number: Interval
    two_numbers: Interval
    all_validation: Interval
    more_rows: Interval
    told: tuple[Interval, Interval]
    labels: Mapping[int, tuple[Interval, float, Interval]]


@dataclass(frozen=True)
class Rows:
    """Test rows of one source, the head that reads them, and the signals of each row."""

    head: Head
    outputs: Outputs
    signals: Signals

    @property
    def values(self) -> Floats:
        """Return the signal that answers are accepted by. Shape: (N,)."""
        return self.signals[self.head.calibration.accept_by]

    def decided(self, model: Calibration | None = None) -> Decided:
        """Return what the head says, with another mapping of its signals or its own."""
        return Decided.of(
            self.outputs, model or self.head.calibration, self.signals,
            labels=self.head.labels, outside=None,
        )  # fmt: skip

    def judged(self) -> list[Judged]:
        """Return what people would say of each row: whether its label is right."""
        made = self.decided()
        names = [source_of(self.head.labels[label]) for label in made.chosen]
        return [
            Judged(name, float(value), bool(right))
            for name, value, right in zip(names, self.values, made.right, strict=True)
        ]


def study(
    folder: Path, test: Outputs, *, validation: Outputs, checked: Sequence[int] = CHECKED
) -> dict[str, Recalibrated]:
    """Return the figures of each source of a head that reads documents.

    Args:
        folder: Of the head.
        test: Of its graph on test rows.
        validation: Of its graph on validation rows.
        checked: How many labels people have checked.
    """
    head = heads.load(folder).head
    fitted = served.statistics(folder)
    of_label = np.array([source_of(label) for label in head.labels])

    def rows(of: Outputs) -> Rows:
        found, _ = confidence.decided(of, head.calibration, fitted, labels=head.labels)
        return Rows(head, of, found)

    held_out = rows(validation)
    refitted = _refitted(held_out)
    own = {
        source: test.take(np.flatnonzero(of_label[test.targets] == source))
        for source in sorted(set(of_label.tolist()))
    }
    return {
        source: _of_source(rows(of), refitted, _more_rows(held_out, source), checked)
        for source, of in own.items()
        if len(of.targets)
    }


def _refitted(rows: Rows) -> Calibration:
    """Return the calibration whose confidence is fitted on all of these rows."""
    made, values = rows.decided(), rows.values
    taken = np.array([source_of(rows.head.labels[label]) for label in made.chosen])
    sources = {
        name: own.model_copy(
            update={
                "signal": confidence.fit_platt(
                    values[taken == name], made.right[taken == name], chance=0.5
                )
            }
        )
        for name, own in rows.head.calibration.sources.items()
    }
    return rows.head.calibration.model_copy(update={"sources": sources})


def _more_rows(rows: Rows, source: str) -> Interval:
    """Return the gain in log loss, on rows that are taken for a source."""
    made = rows.decided()
    taken = np.array([source_of(rows.head.labels[label]) for label in made.chosen]) == source
    values, right = rows.values[taken], made.right[taken]
    rng = np.random.default_rng(0)
    gains = []
    for _ in range(_SPLITS):
        order = rng.permutation(len(right))
        half, most = len(order) // 2, round(0.9 * len(order))
        losses = [
            _log_loss(
                confidence.fit_platt(values[order[:count]], right[order[:count]], chance=0.5),
                values[order[most:]],
                right[order[most:]],
            )
            for count in (half, most)
        ]
        gains.append(losses[0] - losses[1])
    return _spread(gains)


def _log_loss(signal: Signal, values: Floats, right: Flags) -> float:
    sure = 1.0 / (1.0 + np.exp(-(signal.scale * values + signal.offset)))
    return float(-np.log(np.where(right, sure, 1.0 - sure).clip(1e-6)).mean())


def _of_source(
    rows: Rows, refitted: Calibration, more_rows: Interval, checked: Sequence[int]
) -> Recalibrated:
    made = rows.decided()
    count = len(made.right)
    return Recalibrated(
        count,
        _error(made),
        confidence.by_chance(made.sure, rounds=_ROUNDS),
        _gap(made),
        _error(rows.decided(learned(rows.head.calibration, rows.judged()))),
        _two_numbers(rows),
        _error(rows.decided(refitted)),
        more_rows,
        _told(rows),
        {n: _after(rows, n) for n in checked if n < count},
    )


def _error(made: Decided) -> Interval:
    return confidence.calibration_error(made.sure, made.right, rounds=_ROUNDS)


def _gap(made: Decided) -> Interval:
    off = made.sure - made.right
    return signals.bootstrap(lambda i: float(off[i].mean()), len(off), rounds=_ROUNDS)


def _two_numbers(rows: Rows) -> Interval:
    """Return the error where each tenth is scored by a mapping fitted to the other rows."""
    values, made = rows.values, rows.decided()
    sure = np.zeros(len(values))
    part = np.random.default_rng(0).permutation(len(values)) % _PARTS
    for number in range(_PARTS):
        held = part == number
        signal = confidence.fit_platt(values[~held], made.right[~held], chance=0.5)
        sure[held] = 1.0 / (1.0 + np.exp(-(signal.scale * values[held] + signal.offset)))
    return confidence.calibration_error(sure.astype(np.float32), made.right, rounds=_ROUNDS)


def _told(rows: Rows) -> tuple[Interval, Interval]:
    """Return accuracy and macro-F1 where no label of another source is taken."""
    labels, targets = rows.head.labels, rows.outputs.targets
    own = np.array([source_of(label) == source_of(labels[targets[0]]) for label in labels])
    chosen = np.where(own, rows.outputs.logits, -np.inf).argmax(-1)
    right = chosen == targets
    return (
        signals.bootstrap(lambda i: float(right[i].mean()), len(right), rounds=_ROUNDS),
        signals.bootstrap(
            lambda i: confidence.macro_f1(chosen[i], targets[i]), len(right), rounds=300
        ),
    )


def _after(rows: Rows, labels: int) -> tuple[Interval, float, Interval]:
    """Return the figures of the rows that are left when some are checked, over draws."""
    judged = rows.judged()
    rng = np.random.default_rng(0)
    errors, chances, gaps = [], [], []
    for _ in range(_DRAWS):
        order = rng.permutation(len(judged))
        model = learned(rows.head.calibration, [judged[at] for at in order[:labels]])
        made = rows.decided(model)
        left = np.sort(order[labels:])
        sure, right = made.sure[left], made.right[left]
        errors.append(confidence.calibration_error(sure, right, rounds=1).value)
        chances.append(confidence.by_chance(sure, rounds=20, seed=len(errors))[0])
        gaps.append(float((sure - right).mean()))
    return _spread(errors), float(np.mean(chances)), _spread(gaps)


def _spread(values: Sequence[float]) -> Interval:
    low, high = np.percentile(values, [2.5, 97.5])
    return Interval(float(np.mean(values)), float(low), float(high))


def page(found: Mapping[str, Recalibrated]) -> str:
    """Return the tables."""
    columns = ["source", "rows", "ECE", "by chance, 95th percentile", "gap", "one number"]
    rows = [
        [
            f"`{name}`", f"{one.rows:,}", _percent(one.error),
            f"{100 * one.chance[0]:.1f}, {100 * one.chance[1]:.1f}", _percent(one.gap),
            _percent(one.one_number), _percent(one.two_numbers),
            _percent(one.all_validation),
        ]
        for name, one in found.items()
    ]  # fmt: skip
    after = [
        [
            f"`{name}`", str(labels), str(one.rows - labels), _percent(error),
            f"{100 * chance:.1f}", _percent(gap),
        ]
        for name, one in found.items()
        for labels, (error, chance, gap) in one.labels.items()
    ]  # fmt: skip
    told = [
        [f"`{name}`", f"{one.more_rows.value:.3f}", *(_percent(figure) for figure in one.told)]
        for name, one in found.items()
    ]
    return "\n\n".join(
        [
            table([*columns, "two numbers", "all validation"], rows),
            table(["source", "labels", "other rows", "ECE", "by chance", "gap"], after),
            table(["source", "log loss, more rows", "accuracy, told the source", "macro-F1"], told),
        ]
    )


def _percent(found: Interval) -> str:
    return f"{100 * found.value:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"
