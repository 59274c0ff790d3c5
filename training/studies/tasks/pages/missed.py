"""The section with every goal, its figure, and the cause of each missed goal.

Figures of other pages are read from their tables (``quality.tables``), so that no figure stands
here twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from studies.intents import tables
from studies.quality.tables import figure
from studies.tasks import curves, frozen, strategies
from studies.tasks.pages import page
from studies.tasks.pages.paragraphs import wrapped
from studies.tasks.result import StudyResult
from studies.tasks.strategies import Strategy

TITLE = "## Where goals are missed, and why"
Found = Mapping[str, StudyResult]


@dataclass(frozen=True)
class Goal:
    """A goal and the figure reached; ``lower`` if less is better, ``digits`` as printed.

    The name starts with the topic and a colon.
    """

    name: str
    asked: float
    reached: float
    digits: int = 1
    lower: bool = False

    @property
    def topic(self) -> str:
        """Return the topic of the goal."""
        return self.name.partition(":")[0]

    @property
    def short(self) -> float:
        """Return the distance to a missed goal, as printed; 0 for a goal that is reached."""
        gap = self.reached - self.asked if self.lower else self.asked - self.reached
        return max(0.0, round(gap, self.digits))


@dataclass(frozen=True)
class Cited:
    """A goal whose figure another table holds: page, heading, row and column."""

    name: str
    asked: float
    page: str
    heading: str
    row: tuple[str, ...]
    column: str
    digits: int = 1


_LOGS = "## Log failures"
_LEAST_80 = "accuracy of the surest 80 %"
_QUALITY, _SEARCH, _TEMPLATES = "quality.md", "search-quality.md", "log-templates.md"
_ANSWERS = (_QUALITY, "## Answers", ("qa, null threshold",), "F1")
_TAUGHT = "Search: SciFact, reranked by a head that its own claims taught; not shipped"
_BEFORE = (
    Cited("Answers: F1, first step", 60.0, *_ANSWERS),
    Cited("Answers: F1, published with 14 times the questions", 71.8, *_ANSWERS),
)
_AFTER = (
    Cited("Search: SciFact, hybrid, nDCG@10", 73.3, _SEARCH, "## SciFact", ("hybrid",), "nDCG@10"),
    Cited("Search: CACM, hybrid, nDCG@10", 57.0, _SEARCH, "## CACM", ("hybrid",), "nDCG@10"),
    Cited("Search: SciFact, reranked", 75.5, _SEARCH, "## SciFact", ("hybrid, then",), "nDCG@10"),
    Cited(
        _TAUGHT,
        75.5,
        _SEARCH,
        "### Trained on whole passages",
        ("general, then claims",),
        "SciFact",
    ),
    Cited("Search: CACM, reranked", 60.0, _SEARCH, "## CACM", ("hybrid, then",), "nDCG@10"),
    *(
        Cited(
            f"Log failures: {name}, {title}, {column}", asked, _QUALITY, _LOGS, (name, row), column
        )
        for name, row, title, f1, at_80 in (
            ("logs_syzkaller", "head", "head on vectors", 45.0, 63.2),
            ("logs_defects4j", "head", "head on vectors", 55.0, 97.6),
            ("logs_rinstall", "both", "head and words", 72.0, 99.0),
        )
        for column, asked in (("macro-F1", f1), (_LEAST_80, at_80))
    ),
    *(
        Cited(f"Log templates: {column}", asked, _TEMPLATES, "# ", ("Verso",), column, 3)
        for column, asked in (("GA", 0.80), ("FGA", 0.80), ("V", 0.96))
    ),
    Cited(
        "Log templates: lines a CPU second",
        50_000.0,
        _TEMPLATES,
        "# ",
        ("Verso",),
        "lines a CPU second",
        0,
    ),
)
_REASONS = {
    "Answers": "**Answers.** The published reader had 130,000 questions, this one 9,117 of 26 "
    "articles "
    "and those of QAMR. With a quarter of the 9,117 and of the steps (`python -m studies "
    "head --recipe qa-quarter`, 2026-11-22) F1 is 53.9 instead of 61.0, both by the margin alone: "
    "3.6 points a doubling. "
    "130,000 questions are 3.8 doublings more, which would be 74.6 were it to go on as straight. "
    "Part of that slope is what more steps give.",
    "Search": "**Search.** A distance of a few tenths says nothing on the 52 questions of CACM, "
    "whose "
    "56.9 has an interval of 50.3 to 63.7, or the 300 of SciFact. The heads that rerank were not "
    "made for it: `alike` is the cosine of sentences, untrained, and `pairs` learnt from single "
    "sentences, so that by itself it is 20 points behind the search where it reads whole records "
    "and 14 where it reads sentences. "
    "Mixed with the search's own score neither gains anything that could be told from noise "
    "([measured](search-quality.md#reranking)). What helps is passages of the set's own kind: "
    "taught by 2,100 questions with passages of other sets, a head by itself comes from 25.6 to "
    "7.5 points behind the search on SciFact's training claims, and mixed it gains nothing that "
    "could be told from noise; with ten minutes more on 584 of the set's own claims the 75.5 are "
    "reached on its test questions. That head may not ship, and does nothing for CACM, which has "
    "no training questions ([measured](search-quality.md#trained-on-whole-passages)). On CACM the "
    "best order of the 30 records that are read would give 82.5: 17.5 points are not among them "
    "and 25.6 lie in their order, but each head alone orders them worse than the search does, by "
    "11.6 and 16.7 points ([why](search-quality.md#why-cacm-loses-by-it)). Nor do other orders "
    "that the same encoder gives without training: token by token, or asked again with what was "
    "found ([tried](search-quality.md#what-else-was-tried)).",
    "Log failures": "**logs_rinstall.** Three of the six labels have two test rows each, and "
    "one such "
    "row is worth up to 5.6 points of macro-F1: words alone, right far more often, miss the "
    "goal too. The "
    "vector falls behind them because it holds a text's first 256 tokens.",
    "Log templates": "**Log templates.** Each line is parsed as a log collection parses it, "
    "and its header is looked for, which takes most of the time "
    "([its page](log-templates.md)).",
}
"""Causes that no study measures, printed if a goal of the topic is missed."""
_CHOSEN = (
    "**Chosen after looking.** The figures of similarity are of ensembles that were built "
    "after single readers had missed on these rows; they do not ship, and the single "
    "readers miss. The signal for out-of-scope questions is one of 55, chosen on about "
    "100 rows. The reference of several tasks, one encoder a task, is below the untrained "
    "cosine. The "
    "parameters of log templates were chosen on the reported sets; chosen on half of "
    "them, the other half gives GA 0.874, FGA 0.899 and V 0.978."
)
"""What a reader must know of the figures that reach their goal."""

_TOPICS = {
    "vectors": "Similarity",
    "similarity": "Similarity",
    "duplicates": "Classification",
    "sentiment": "Classification",
    "intents": "Intents",
    "scope_auroc": "Intents",
    "scope_fpr95": "Intents",
}


def _multiple(doublings: float) -> str:
    if doublings >= 7.0:
        return "more than 100 times"
    rows = 2**doublings
    return f"{rows:.1f} times" if rows < 2 else f"{rows:.0f} times"


def section(found: Found, folder: Path) -> str:
    """Every goal and the causes; empty where no study was done.

    Args:
        found: Studies by name.
        folder: Holds the pages that are cited.
    """
    if not found:
        return ""
    goals = [*_cited(_BEFORE, folder), *_studied(found), *_cited(_AFTER, folder)]
    missed = {goal.topic for goal in goals if goal.short > 0}
    told = [wrapped(text) for topic, text in _REASONS.items() if topic in missed]
    parts = [TITLE, _opening(goals), _table(goals), wrapped(_CHOSEN)]
    parts += [_rows_needed(found), _spread(found)]
    parts += [tables.causes(found) if "Intents" in missed else "", *told]
    return "\n\n".join(part for part in parts if part) + "\n"


def _cited(goals: tuple[Cited, ...], folder: Path) -> Iterator[Goal]:
    for goal in goals:
        path = folder / goal.page
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        reached = figure(text, goal.heading, row=goal.row, column=goal.column)
        if reached is not None:
            yield Goal(goal.name, goal.asked, reached, goal.digits)


def _studied(found: Found) -> Iterator[Goal]:
    values = page.reached(found)
    for key, topic in _TOPICS.items():
        if key in values:
            name, asked = page.GOALS[key]
            yield Goal(f"{topic}: {name}", asked, values[key], lower=key in page.LOWER)
    full = strategies.joined(Strategy.FULL, found)
    for strategy in (Strategy.LORA, Strategy.ROUND_ROBIN):
        part = strategies.joined(strategy, found)
        if part and full and "mean" in part.figures and "mean" in full.figures:
            gap = part.figures["mean"] - full.figures["mean"]
            yield Goal(
                f"Several tasks: {page.NAMES[strategy]}, against one encoder a task", -0.5, gap
            )


def _opening(goals: list[Goal]) -> str:
    missed = sum(goal.short > 0 for goal in goals)
    twice = any(goal.name == _TAUGHT for goal in goals)
    return wrapped(
        f"Of {len(goals)} figures, {len(goals) - missed} reach what was asked for. A figure of "
        "another page is read from that page's table."
        + twice
        * " One goal, SciFact reranked, stands here twice: by what ships and by what does not."
    )


def _table(goals: list[Goal]) -> str:
    lines = ["| goal | asked | reached | |", "|---|---:|---:|---|"]
    for goal in goals:
        gap = f"{goal.short:.{goal.digits}f} {'over' if goal.lower else 'short'}"
        gap = gap if goal.short > 0 else "yes"
        cells = (f"{value:.{goal.digits}f}" for value in (goal.asked, goal.reached))
        lines.append(f"| {goal.name} | {' | '.join(cells)} | {gap} |")
    return "\n".join(lines)


def _rows_needed(found: Found) -> str:
    sst, quora, clinc = (page.GOALS[key][1] for key in ("sentiment", "duplicates", "intents"))
    heads = "head on stored vectors"
    known = (
        ("SST-5, adapter", sst, curves.adapter(found, "sentiment")),
        (f"SST-5, {heads}, mean of 3 seeds", sst, curves.heads(found, "sentiment")),
        ("Quora, adapter", quora, curves.adapter(found, "duplicates")),
        (f"Quora, {heads}, mean of 3 seeds", quora, curves.heads(found, "duplicates")),
        ("CLINC150, adapter", clinc, tables.adapter_curve(found)),
        (f"CLINC150, {heads}", clinc, tables.heads_curve(found)),
    )
    rows = []
    for title, goal, curve in known:
        if curve is None:
            continue
        shares = (curve.points.get(share) for share in frozen.SHARES)
        cells = " | ".join("" if value is None else f"{value:.1f}" for value in shares)
        doublings = curve.doublings(goal)
        needed = _multiple(doublings)
        rows.append(f"| {title} | {cells} | {curve.slope:+.1f} | {needed} |")
    if not rows:
        return ""
    head = wrapped(
        "**Rows.** The same recipe on a share of the training rows. A doubling is worth the slope "
        "of a straight line over log2 of the rows; the last column tells by how much the rows "
        "would have to be multiplied, were it to go on as straight. An adapter reads fewer rows "
        "as often, so in fewer steps: part of its slope is what more steps would give."
    )
    titled = "| accuracy, % | 25 % | 50 % | 100 % | a doubling | rows for the goal |"
    return "\n".join([head, "", titled, "|---|---:|---:|---:|---:|---:|", *rows])


def _spread(found: Found) -> str:
    told = []
    for key, one in page.together(found).items():
        half = (one.together.high - one.together.low) / 2.0
        told.append(f"{page.GOALS[key][0]}: ± {half:.1f}")
    told = [f"**Rows that are reported.** Their choice alone leaves: {'; '.join(told)}."] * bool(
        told
    )
    if (part := found.get("distillation")) and "full-sentiment" in found:
        seeds = [part.figures[f"alone_{seed}"] for seed in (0, 1)]
        whole = found["full-sentiment"].figures["sentiment"]
        told.append(
            f"**Size and seed.** Fine-tuned on SST-5's labels, 3 layers reach {seeds[0]:.1f} and "
            f"{seeds[1]:.1f} with two seeds, 6 layers {whole:.1f}: {whole - mean(seeds):+.1f} for "
            "twice the depth. The published encoder has 12 layers of twice the width."
        )
    return wrapped(" ".join(told)) if told else ""
