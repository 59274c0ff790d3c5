"""The figures of a head as Markdown, for its card."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from verso_core.heads import Calibration
from verso_training.heads.confidence import Report
from verso_training.heads.marking import Marks
from verso_training.heads.selective import Interval


def classifier(
    report: Report, calibration: Calibration, *, labels: tuple[str, ...], notes: tuple[str, ...]
) -> str:
    """What a classifier does on its test rows: accuracy, signals, risk-coverage, thresholds."""
    lines = [
        f"{len(labels)} labels: {_shortened(labels)}.",
        *notes,
        "",
        f"On {report.rows} test rows: accuracy {percent(report.accuracy)}, macro-F1",
        f"{100 * report.macro_f1:.1f}. Brackets are 95 % bootstrap intervals.",
        "",
        *signals_table(report),
        "",
        *curve_table(report),
        "",
        *scope_table(report),
        f"Temperature {calibration.temperature:.3f}; answers are accepted by",
        f"`{calibration.accept_by}`. On the test rows:",
        "",
        *accepted_table(report),
    ]
    return "\n".join(lines)


def reader(rows: Mapping[str, tuple[float, Marks]], *, auroc: float, notes: Sequence[str]) -> str:
    """What a reader does: marks by part, each at a null threshold."""
    lines = [
        *notes,
        "",
        "| part | null threshold | EM | F1 | F1, answerable | unanswerable, refused |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, (threshold, marks) in rows.items():
        lines.append(
            f"| {name} | {threshold:.2f} | {marks.exact:.1f} | {marks.f1:.1f} "
            f"| {marks.answerable_f1:.1f} | {marks.refused:.1f} |"
        )
    lines += ["", f"AUROC, answerable against unanswerable: {100 * auroc:.1f}."]
    return "\n".join(lines)


def scorer(figures: Mapping[str, float], *, notes: Sequence[str]) -> str:
    """What a scorer does on its test pairs."""
    lines = [*notes, "", "| on test pairs | |", "|---|---:|"]
    lines += [f"| {name.replace('_', ' ')} | {value:.1f} |" for name, value in figures.items()]
    return "\n".join(lines)


def signals_table(report: Report) -> list[str]:
    """How well each signal tells right answers from wrong ones."""
    rows = [
        "| signal | AUGRC × 100 | accuracy of the surest 80 % | AUROC right/wrong | FPR95 |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, found in report.signals.items():
        rows.append(
            f"| {name} | {percent(found.augrc, digits=2)} | {percent(found.accuracy_at_80)} "
            f"| {percent(found.auroc)} | {percent(found.fpr95)} |"
        )
    return rows


def curve_table(report: Report) -> list[str]:
    """Risk-coverage: the error rate among the surest 10 %, 20 %, ..."""
    heading = " | ".join(f"{10 * c} %" for c in range(1, 11))
    rows = [f"| errors, %, among the surest | {heading} |", "|---|" + "---:|" * 10]
    for name, curve in report.curve.items():
        rows.append(f"| {name} | " + " | ".join(f"{100 * risk:.1f}" for risk in curve) + " |")
    return rows


def scope_table(report: Report) -> list[str]:
    """How well each signal tells what is in scope, and a line below it; empty where none does."""
    if not report.scope:
        return []
    rows = ["| signal, in scope against out of scope | AUROC | FPR95 |", "|---|---:|---:|"]
    for name, found in report.scope.items():
        rows.append(f"| {name} | {percent(found.auroc)} | {percent(found.fpr95)} |")
    return [*rows, ""]


def accepted_table(report: Report) -> list[str]:
    """What the thresholds did."""
    if not report.accepted:
        return ["No threshold: too few calibration rows for any error rate."]
    rows = ["| errors asked for | accepted | errors among them |", "|---:|---:|---:|"]
    for rate, (coverage, wrong) in report.accepted.items():
        rows.append(f"| ≤ {100 * float(rate):g} % | {100 * coverage:.1f} % | {100 * wrong:.1f} % |")
    return rows


def percent(interval: Interval, *, digits: int = 1) -> str:
    """Such as ``93.1 [91.0, 95.2]``; ``-`` where there is none, as without a wrong answer."""
    if math.isnan(interval.value):
        return "-"
    value, low, high = (
        f"{100 * x:.{digits}f}" for x in (interval.value, interval.low, interval.high)
    )
    return f"{value} [{low}, {high}]"


def _shortened(labels: tuple[str, ...]) -> str:
    shown = [f"`{label}`" for label in labels[:40]]
    return ", ".join(shown) + (f" and {len(labels) - 40} more" if len(labels) > 40 else "")
