"""The tables of intents, and what keeps CLINC150 below its goals."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from verso_training.tasks import intent_means, intents
from verso_training.tasks.curves import Curve
from verso_training.tasks.intent_means import Found
from verso_training.tasks.intents import CLINC
from verso_training.tasks.outcome import Outcome
from verso_training.tasks.paragraphs import wrapped

ASKED, ASKED_FPR95 = 96.5, 8.0
"""The goals of CLINC150: accuracy of 150 intents, and FPR95 out of scope, in percent."""


def outcome_of(found: Found, name: str) -> Outcome | None:
    """With its adapter, or from stored vectors alone."""
    return found.get(name) or found.get(f"frozen-{name}")


def classifier(part: Outcome) -> str:
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
        mean(p.figures[f"accuracy_vector_{seed}"] for seed in intents.SEEDS) for p in parts.values()
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
    made = intent_means.classifiers(found)
    if not made:
        return ""
    best = intent_means.chosen(made)
    lines = ["| CLINC150, accuracy, % | validation | test |", "|---|---:|---:|"]
    for title, one in made.items():
        name = f"**{title}**, chosen on validation" if title == best else title
        value = f"{one.test.value:.1f} [{one.test.low:.1f}, {one.test.high:.1f}]"
        lines.append(f"| {name} | {one.validation:.1f} | {value} |")
    return "\n".join(lines)


def _scope(found: Found) -> str:
    made = intent_means.signals(found)
    if not made:
        return ""
    best = intent_means.chosen(made)
    lines = [
        "| CLINC150, in scope against out of scope | AUROC | FPR95 |",
        "|---|---:|---:|",
    ]
    for title, one in made.items():
        name = f"**{title}**, chosen on validation" if title == best else title
        cells = (f"{of.value:.1f} [{of.low:.1f}, {of.high:.1f}]" for of in (one.auroc, one.fpr95))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    readers = intent_means.readers(found)
    what = wrapped(
        f"Each signal is the mean of {readers['adapter']} adapters' or {readers['vector']} heads', "
        "by seed. Brackets are 95 % bootstrap intervals over the test rows."
    )
    return "\n".join([what, "", *lines])


def causes(found: Found) -> str:
    """Why CLINC150's goals are missed, as far as studies tell."""
    made = intent_means.classifiers(found)
    if not made:
        return ""
    return "\n\n".join(
        part for part in (_accuracy(found), _curve(found), _confused(found), _choice(found)) if part
    )


def _accuracy(found: Found) -> str:
    made = intent_means.classifiers(found)
    best = made[intent_means.chosen(made)]
    asked = len(best.said)
    error = 100.0 * (ASKED / 100.0 * (1.0 - ASKED / 100.0) / asked) ** 0.5
    more = round((ASKED - best.test.value) / 100 * asked)
    told = (
        f"**Intents.** {more} more right answers of {asked:,} would make {ASKED:.1f} %; another "
        f"draw of as many questions moves such a figure by {error:.2f} (standard error)."
    )
    alone = [found[one.study].figures["accuracy_adapter"] for one in intent_means.ADAPTERS
             if one.study in found]  # fmt: skip
    if len(alone) > 1:
        figures = ", ".join(f"{value:.1f}" for value in alone)
        told += f" The adapter by seed: {figures}."
    if (half := found.get(intents.HALF.study)) is not None:
        told += (
            f" On three of the six layers it reaches {half.figures['accuracy_adapter']:.1f}: "
            f"{alone[0] - half.figures['accuracy_adapter']:+.1f} for twice the depth."
        )
    return wrapped(told)


def curve(found: Found) -> Curve | None:
    """The adapter's accuracy by share of the training rows."""
    studies = {one.share: one.study for one in (CLINC, *intents.MORE) if one.share < 1.0}
    studies[1.0] = CLINC.study
    if not set(studies.values()) <= found.keys():
        return None
    points = {share: found[s].figures["accuracy_adapter"] for share, s in sorted(studies.items())}
    return Curve("intents", points)


def _curve(found: Found) -> str:
    if (made := curve(found)) is None:
        return ""
    figures = ", ".join(f"{value:.1f} with {share:.0%}" for share, value in made.points.items())
    last = made.points[1.0] - made.points[max(intents.SHARES)]
    return wrapped(
        f"The adapter reaches {figures} of the 15,100 training questions: the last doubling was "
        f"worth {last:+.1f}."
    )


def _confused(found: Found) -> str:
    made = intent_means.classifiers(found)
    counted = intent_means.errors(found, made[intent_means.chosen(made)])
    if counted is None or not counted.wrong:
        return ""
    listed = [f"`{a}` and `{b}` ({count})" for (a, b), count in counted.pairs[:6]]
    top = sum(count for _, count in counted.pairs[:10])
    return wrapped(
        f"Of the {counted.wrong} wrong answers {counted.by_all} are wrong by every one of "
        f"{counted.readers} readers, {counted.alike} of these with one and the same intent: no "
        f"matter of seeds. In {counted.second} the right intent comes second. Ten pairs of intents "
        f"hold {top}; the first: {', '.join(listed)}."
    )


def _choice(found: Found) -> str:
    told = intent_means.signals(found)
    left = intent_means.choice(found)
    best = told[intent_means.chosen(told)]
    if left is None or round(best.fpr95.value - ASKED_FPR95, 1) <= 0:
        return ""
    return wrapped(
        f"**Scope.** FPR95 of {best.fpr95.value:.1f} has the interval "
        f"[{best.fpr95.low:.1f}, {best.fpr95.high:.1f}]. The signal is chosen among {left.tried} "
        f"on the {left.outside} validation questions that are out of scope, where it has AUROC "
        f"{best.validation:.1f}: another draw of them makes the same choice in {left.again:.0f} % "
        f"of the cases, and what is chosen then has FPR95 of {left.low:.1f} to {left.high:.1f} on "
        f"the test rows. Of all {left.tried} the lowest there is {left.best:.1f}."
    )
