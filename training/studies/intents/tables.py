"""The tables of intents, and why CLINC150 misses its goals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean

from studies.intents import means
from studies.intents.means import Found, Signal
from studies.tasks import adapters
from studies.tasks.adapters import CLINC
from studies.tasks.curves import Curve
from studies.tasks.pages.paragraphs import wrapped
from studies.tasks.result import StudyResult
from verso_training.heads.signals import Interval

ASKED, ASKED_FPR95 = 96.5, 8.0
"""The goals of CLINC150: accuracy of 150 intents, and FPR95 out of scope, in percent."""


_QUESTIONS, _STRANGE = 4_500, 1_000
"""Of CLINC150's test part, in scope and out of it."""


def outcome_of(found: Found, name: str) -> StudyResult | None:
    """With its adapter, or from stored vectors alone."""
    return found.get(name) or found.get(f"frozen-{name}")


def classifier(part: StudyResult) -> str:
    """The classifier of one study with the best validation accuracy."""
    known = [name for name in ("adapter", "both", "vector_0") if f"accuracy_{name}" in part.figures]
    return max(known, key=lambda name: part.figures.get(f"validation_{name}", 0.0))


def section(found: Found) -> str:
    """Accuracies of both sets, and CLINC150's signals of scope; empty where nothing was done."""
    named = {"intent_clinc150": "CLINC150", "intent_banking77": "BANKING77"}
    parts = {
        title: part
        for name, title in named.items()
        if (part := outcome_of(found, name)) is not None
    }
    if not parts:
        return ""
    cells = [
        mean(p.figures[f"accuracy_vector_{seed}"] for seed in adapters.SEEDS)
        for p in parts.values()
    ]
    lines = [
        "### Intents: vectors and adapters",
        "",
        "| accuracy, % | " + " | ".join(parts) + " |",
        "|---|" + "---:|" * len(parts),
        _row("head on stored vectors, mean of 3 seeds", cells),
    ]
    for key, title in (("adapter", "adapter"), ("both", "both, geometric mean")):
        figures = [p.figures.get(f"accuracy_{key}") for p in parts.values()]
        if any(value is not None for value in figures):
            lines.append(_row(title, figures))
    told = "\n".join(lines)
    return "\n\n".join(part for part in (told, _together(found), _scope(found)) if part)


def _row(title: str, cells: Sequence[float | None]) -> str:
    told = ("" if value is None else f"{value:.1f}" for value in cells)
    return f"| {title} | {' | '.join(told)} |"


def _together(found: Found) -> str:
    made = means.classifiers(found)
    if not made:
        return ""
    best = means.chosen(made)
    lines = ["| CLINC150, accuracy, % | validation | test |", "|---|---:|---:|"]
    for title, one in made.items():
        name = f"**{title}**, chosen on validation" if title == best else title
        value = f"{one.test.value:.1f} [{one.test.low:.1f}, {one.test.high:.1f}]"
        lines.append(f"| {name} | {one.validation:.1f} | {value} |")
    return "\n".join(lines)


def _scope(found: Found) -> str:
    made = _signals(found)
    if not made:
        return ""
    best = means.chosen(made)
    lines = [
        "| CLINC150, in scope against out of scope | AUROC | FPR95 |",
        "|---|---:|---:|",
    ]
    for name, one in made.items():
        title = name.replace("_", ": ", 1).replace("+", " + ").replace("_", ": ")
        title = f"**{title}**, chosen on validation" if name == best else title
        lines.append(f"| {title} | {_told(one.auroc)} | {_told(one.fpr95)} |")
    if counts := means.readers(found):
        what = wrapped(
            f"Each signal is the mean of {counts['adapter']} adapters' or {counts['vector']} "
            "heads', by seed. Brackets are 95 % bootstrap intervals over the test rows."
        )
        lines = [what, "", *lines]
    return "\n".join(lines)


def _signals(found: Found) -> dict[str, Signal]:
    """Of all seeds, with intervals; of the first alone where its study kept no rows."""
    if (part := found.get(CLINC.study)) is None:
        return {}
    f, unknown = part.figures, float("nan")
    names = [key.removeprefix("auroc/") for key in f if key.startswith("auroc/")]
    return means.compare_signals(found) or {
        name: Signal(
            f.get(f"chosen/{name}", 0.0),
            *(Interval(f[f"{figure}/{name}"], unknown, unknown) for figure in ("auroc", "fpr95")),
        )
        for name in names
    }


def _told(of: Interval) -> str:
    return f"{of.value:.1f}" + (f" [{of.low:.1f}, {of.high:.1f}]" if of.low == of.low else "")


def reached(found: Found) -> dict[str, float]:
    """Return the figures of the goals on CLINC150 and BANKING77."""
    values = {}
    if (part := found.get(CLINC.study)) is not None:
        made = means.classifiers(found)
        usual = part.figures[f"accuracy_{classifier(part)}"]
        values["intents"] = made[means.chosen(made)].test.value if made else usual
    if told := _signals(found):
        best = told[means.chosen(told)]
        values |= {"scope_auroc": best.auroc.value, "scope_fpr95": best.fpr95.value}
    if (banking := outcome_of(found, "intent_banking77")) is not None:
        values["banking"] = banking.figures[f"accuracy_{classifier(banking)}"]
    return values


def causes(found: Found) -> str:
    """Why CLINC150's goals are missed, as far as studies tell; empty where none was done."""
    if "intents" not in (values := reached(found)):
        return ""
    parts = [_accuracy(found, values["intents"]), _confused(found)]
    if "scope_fpr95" in values:
        parts.append(_choice(found, values["scope_fpr95"]))
    return "\n\n".join(part for part in parts if part)


def _error(percent: float, *, of: int) -> float:
    """Standard error of a share of so many rows, in percent points."""
    return float((percent * (100.0 - percent) / of) ** 0.5)


def _accuracy(found: Found, value: float) -> str:
    more = math.ceil((ASKED - value) / 100 * _QUESTIONS - 1e-6)
    told = (
        f"**Intents.** {more} more right answers of {_QUESTIONS:,} would make {ASKED:.1f} %; "
        "another draw of as many questions moves such a figure by "
        f"{_error(ASKED, of=_QUESTIONS):.2f} (standard error)."
    )
    alone = [
        found[one.study].figures["accuracy_adapter"] for one in means.ADAPTERS if one.study in found
    ]
    if len(alone) > 1:
        figures = ", ".join(f"{one:.1f}" for one in alone)
        told += f" The adapter by seed: {figures}."
    if (half := found.get(adapters.HALF.study)) is not None:
        told += (
            f" On three of the six layers it reaches {half.figures['accuracy_adapter']:.1f}: "
            f"{alone[0] - half.figures['accuracy_adapter']:+.1f} for twice the depth."
        )
    return wrapped(told)


def adapter_curve(found: Found) -> Curve | None:
    """The adapter's accuracy on CLINC150 by share of the training rows."""
    studies = {one.share: one.study for one in adapters.MORE if one.share < 1.0}
    studies[1.0] = CLINC.study
    if not set(studies.values()) <= found.keys():
        return None
    points = {share: found[s].figures["accuracy_adapter"] for share, s in sorted(studies.items())}
    return Curve("intents", points)


def heads_curve(found: Found) -> Curve | None:
    """The same of the head on stored vectors."""
    if (part := found.get(means.HEADS)) is None:
        return None
    points = {
        share: part.figures[f"accuracy_vector_rows_{share:.0%}".removesuffix("%")]
        for share in adapters.SHARES
    }
    return Curve("intents", points | {1.0: part.figures["accuracy_vector_0"]})


def _confused(found: Found) -> str:
    made = means.classifiers(found)
    counted = means.errors(found, made[means.chosen(made)]) if made else None
    if counted is None or not counted.wrong:
        return ""
    listed = [f"`{a}` and `{b}` ({count})" for (a, b), count in counted.pairs[:6]]
    top = sum(count for _, count in counted.pairs[:10])
    return wrapped(
        f"Of the {counted.wrong} wrong answers {counted.by_all} are wrong by every one of "
        f"{counted.readers} readers, {counted.alike} of these with one and the same intent. In "
        f"{counted.second} the right intent comes second. The wrong ones are spread over "
        f"{len(counted.pairs)} pairs of intents, of which ten hold {top}; the first: "
        f"{', '.join(listed)}."
    )


def _choice(found: Found, value: float) -> str:
    if round(value - ASKED_FPR95, 1) <= 0:
        return ""
    told = (
        f"**Scope.** FPR95 is a share of {_STRANGE:,} questions: {value:.1f} has a standard error "
        f"of {_error(value, of=_STRANGE):.1f}, and {ASKED_FPR95:.1f} is not told apart from it."
        if value - ASKED_FPR95 < 2.0 * _error(value, of=_STRANGE)
        else ""
    )
    if (left := means.choice(found)) is not None:
        told += (
            f" The signal is chosen among {left.tried} on the {left.outside} validation questions "
            "that are out of scope: another draw of them makes the same choice in "
            f"{left.again:.0f} % of the cases, and what is chosen then has FPR95 of "
            f"{left.low:.1f} to {left.high:.1f} on the test rows. Of all {left.tried} the lowest "
            f"there is {left.best:.1f}."
        )
    else:
        told += " The signal is chosen on the 100 validation questions that are out of scope."
    return wrapped(told.strip())
