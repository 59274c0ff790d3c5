"""The section of ``docs/research/quality.md`` with the results of the studies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from statistics import mean

from studies.intents import outside, tables
from studies.papers.kept import with_interval
from studies.tasks import (
    aggregation,
    catalogue,
    distillation,
    frozen,
    means,
    pretraining,
    strategies,
)
from studies.tasks.means import Mean
from studies.tasks.pages.paragraphs import wrapped
from studies.tasks.pairs import apart, mapped, pair_models
from studies.tasks.result import StudyResult
from studies.tasks.strategies import Strategy

TITLE = "## Published tasks, with adapters"
"""Of the section; ``missed`` writes the one after it."""
COMMAND = "make evaluate-tasks"
NAMES = {
    Strategy.FULL: "a fine-tuned encoder a task",
    Strategy.LORA: "an adapter a task (LoRA, rank 16), one encoder",
    Strategy.ROUND_ROBIN: "one fine-tuned encoder, round robin, annealed",
    Strategy.SEQUENTIAL: "one fine-tuned encoder, one task after the other",
}
_PAPER = (
    ("per task, fine-tuned", 51.7, 88.7, 85.3, 75.2),
    ("LoRA (rank 16)", 47.0, 86.3, 78.4, 70.6),
    ("round robin, annealed", 51.0, 88.3, 84.8, 74.7),
    ("one after the other", 21.5, 85.9, 87.9, 65.1),
    ("only the outer layers", 31.1, 67.5, 24.6, 41.1),
)
"""Multi-task minBERT, table 1, dev, times 100: SST, Quora, STS Pearson, their mean."""
GOALS = {
    "vectors": ("STS-B test, vectors apart, Spearman", 86.0),
    "similarity": ("STS-B dev, read together, Spearman", 88.5),
    "duplicates": ("Quora, accuracy", 85.0),
    "sentiment": ("SST-5 dev, accuracy", 50.0),
    "intents": ("CLINC150, accuracy of 150 intents", 96.5),
    "scope_auroc": ("CLINC150, out of scope, AUROC", 98.0),
    "scope_fpr95": ("CLINC150, out of scope, FPR95, at most", 8.0),
    "banking": ("BANKING77, accuracy", 92.0),
}
_OF_MEANS = {
    "vectors": means.vectors,
    "similarity": means.similarity,
    "duplicates": means.duplicates,
    "sentiment": means.sentiment,
}
_OF_ADAPTERS = {
    "similarity": "similarity_dev_spearman",
    "duplicates": "duplicates",
    "sentiment": "sentiment",
}
LOWER = frozenset({"scope_fpr95"})
"""Goals that are kept by what is not above them."""
Found = Mapping[str, StudyResult]


def section(found: Found) -> str:
    """Return all tables of the studies that were done; empty if none was."""
    if not found:
        return ""
    parts = [_opening(found)]
    makers = (
        _goals,
        _means,
        _strategies,
        _apart,
        _mapped,
        pair_models.section,
        pretraining.section,
        tables.section,
        outside.section,
        _distillation,
        aggregation.section,
        _missing,
    )
    parts += [made for made in (maker(found) for maker in makers) if made]
    return "\n\n".join(parts) + "\n"


def replaced(page: str, text: str) -> str:
    """Return the page with a section replaced; a new one stands at the end."""
    if not text:
        return page
    old = kept(page, text.partition("\n")[0])
    return page.replace(old, text) if old else f"{page.rstrip()}\n\n{text}"


def kept(page: str, title: str = TITLE) -> str:
    """A section of a page, to the next title of its rank; empty where it has none."""
    match = re.search(rf"^{re.escape(title)}$.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return f"{match.group(0).rstrip()}\n" if match else ""


def _times(epochs: int) -> str:
    return "one epoch" if epochs == 1 else f"{epochs} epochs"


def _opening(found: Found) -> str:
    one = next(iter(found.values()))
    minutes = sum(part.minutes for part in found.values())
    days = sorted(part.date for part in found.values())
    dates = " to ".join(sorted({days[0], days[-1]}))
    return f"{TITLE}\n\n" + wrapped(
        f"`{COMMAND}`, on {one.machine}, one thread, {dates}: {minutes:.0f} minutes of "
        "training. "
        "Products in bfloat16, weights in float32; embeddings frozen; one seed unless several are "
        "given. Recipes are fixed; layers, thresholds and signals are chosen on validation rows. "
        "SST, Quora, SICK and STS texts carry terms of their own: what is trained on them gives "
        "these figures and is not shipped."
    )  # fmt: skip


def _goals(found: Found) -> str:
    values = reached(found)
    if not values:
        return ""
    rows = ["| goal | asked | reached | |", "|---|---:|---:|---|"]
    for key, (name, asked) in GOALS.items():
        if key in values:
            gap = distance(values[key], asked, lower=key in LOWER)
            rows.append(f"| {name} | {asked:.1f} | {values[key]:.1f} | {gap} |")
    return "\n".join(rows)


def distance(value: float, asked: float, *, lower: bool = False) -> str:
    """Return the distance of a figure to its goal, as the table prints it."""
    short = round(value - asked if lower else asked - value, 1)
    return "yes" if short <= 0 else f"{short:.1f} {'over' if lower else 'short'}"


def reached(found: Found) -> dict[str, float]:
    """Return the figure that each goal refers to, chosen beforehand.

    That is the mean of several readers where all of them are there, else the adapter.
    """
    values: dict[str, float] = {}
    if lora := strategies.joined(Strategy.LORA, found):
        for key, name in _OF_ADAPTERS.items():
            if name in lora.figures:
                values[key] = lora.figures[name]
    if similar := found.get(apart.RANKED.name) or found.get(apart.COSINE.name):
        values["vectors"] = similar.figures["test"]
    values |= {key: of.together.value for key, of in together(found).items()}
    return values | tables.reached(found)


def together(found: Found) -> dict[str, Mean]:
    """Return the figures of means of readers, by goal."""
    made = {key: of(found) for key, of in _OF_MEANS.items()}
    return {key: one for key, one in made.items() if one is not None}


def _means(found: Found) -> str:
    made = together(found)
    if not made:
        return ""
    lines = [
        "### Several readers of the same rows",
        "",
        wrapped(
            "The mean of what readers say that other studies here trained, none weighed: scores "
            "of pairs on STS-B, log odds on Quora, probabilities on SST-5. Two adapters' vectors "
            "of a text lie side by side, 768 bytes, and their cosine is the mean of both. One mean "
            "was tried for each goal. Which readers it takes was settled before it was measured, "
            "but for vectors apart, where either alone had fallen short on the reported rows, and "
            "for STS-B dev, after a look at that very mean. Brackets are 95 % bootstrap intervals "
            "over the rows."
        ),
        "",
        "| goal | each alone | together |",
        "|---|---|---:|",
    ]
    for key, one in made.items():
        alone = "; ".join(f"{name} {value:.1f}" for name, value in one.readers.items())
        low, high = one.together.low, one.together.high
        value = f"**{one.together.value:.1f}** [{low:.1f}, {high:.1f}]"
        lines.append(f"| {GOALS[key][0]} | {alone} | {value} |")
    return "\n".join(lines)


def _strategies(found: Found) -> str:
    ours = {strategy: strategies.joined(strategy, found) for strategy in NAMES}
    untrained = _untrained(found)
    if not untrained and not any(ours.values()):
        return ""
    epochs = ", ".join(str(count) for count in strategies.EPOCHS.values())
    lines = [
        "### Several tasks on one encoder",
        "",
        wrapped(
            "SST-5 (8,544 sentences, accuracy on dev), Quora (16,164 of 20,212 pairs at hand, no "
            "question of a test pair trained on; accuracy on 1,983) and STS-B (5,749 pairs, "
            "Pearson on dev), pairs read together. What is trained on tokens does the same number "
            f"of steps in every row, {epochs} epochs. The published rows had a BERT of 110 M "
            f"against "
            "22 M here, ten epochs, and 283,000 Quora pairs; its STS is split otherwise. "
            "Brackets are 95 % bootstrap intervals over the reported rows."
        ),
        "",
        "| strategy | SST-5 | Quora | STS-B | mean | minutes |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    if untrained:
        lines.append(_frozen(untrained))
    for strategy, name in NAMES.items():
        if part := ours[strategy]:
            named = ("sentiment", "duplicates", "similarity_dev", "mean")
            ends = {**part.figures, **strategies.intervals(part.arrays)}
            cells = (with_interval(ends, n) if n in ends else "" for n in named)
            lines.append(f"| {name} | {' | '.join(cells)} | {part.minutes:.0f} |")
    for name, *values in _PAPER:
        lines.append(f"| *minBERT: {name}* | " + " | ".join(f"{v:.1f}" for v in values) + " | |")
    lines += ["", *_drops(found), *_beside(found)]
    return "\n".join(lines).rstrip()


def _untrained(found: Found) -> dict[str, float]:
    """The figures of the studies on stored vectors alone."""
    names = [f"frozen-{name}" for name in strategies.EPOCHS]
    return {k: v for name in names if name in found for k, v in found[name].figures.items()}


def _frozen(f: Mapping[str, float]) -> str:
    names = ("sentiment_{}", "duplicates_layers_{}", "similarity_dev_layers_{}")
    seeds = [[f[key] for key in map(name.format, frozen.SEEDS) if key in f] for name in names]
    cells = [f"{mean(values):.1f}" if values else "" for values in seeds]
    whole = f"{mean(map(mean, seeds)):.1f}" if all(seeds) else ""
    return f"| heads on stored vectors alone, mean of 3 seeds | {' | '.join(cells)} | {whole} | 0 |"


def _drops(found: Found) -> list[str]:
    """Return the loss of each strategy against one encoder a task, with its interval."""
    full = strategies.joined(Strategy.FULL, found)
    told = []
    for strategy in (Strategy.LORA, Strategy.ROUND_ROBIN, Strategy.SEQUENTIAL):
        part = strategies.joined(strategy, found)
        if part and full and "mean" in part.figures and "mean" in full.figures:
            gap = strategies.difference(part.arrays, full.arrays)
            told.append(f"{NAMES[strategy]}: {gap.value:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}]")
    if not told:
        return []
    text = (
        "Mean against a fine-tuned encoder a task, with 95 % bootstrap intervals over the reported "
        f"rows, one seed: {'; '.join(told)}. Published: LoRA -4.6, round robin -0.5, one after "
        "the other -10.1. The goal was -0.5 for both."
    )
    return [wrapped(text), ""]


def _beside(found: Found) -> list[str]:
    """Figures of the same runs that the table has no room for."""
    told = []
    names = {
        "similarity_dev_spearman": "STS-B dev, Spearman",
        "similarity_test_spearman": "STS-B test, Spearman",
        "similarity_test": "STS-B test, Pearson",
        "duplicates_f1": "Quora, F1",
    }
    for strategy in (Strategy.LORA, Strategy.FULL):
        if part := strategies.joined(strategy, found):
            known = [f"{t} {part.figures[n]:.1f}" for n, t in names.items() if n in part.figures]
            told.append(f"{NAMES[strategy]}: {', '.join(known)}")
    f = _untrained(found)
    cosines = {
        "duplicates_cosine": "Quora",
        "similarity_dev_cosine": "STS-B dev, Pearson",
        "similarity_test_cosine": "STS-B test, Pearson",
    }
    if known := [f"{title} {f[name]:.1f}" for name, title in cosines.items() if name in f]:
        told.append(f"cosine of stored vectors, nothing trained: {', '.join(known)}")
    return [wrapped(f"From the same runs: {'; '.join(told)}.")] if told else []


def _apart(found: Found) -> str:
    made = [(r, found[r.name]) for r in (apart.COSINE, apart.RANKED) if r.name in found]
    if not made:
        return ""
    lines = [
        "### Similarity of vectors stored apart",
        "",
        wrapped(
            "Spearman of the cosine of two int8 vectors, each made without seeing the other; "
            "adapters trained on STS-B's 5,749 pairs and 5,303 of SemEval 2012-16. The index "
            "vectors of the artifact stay as they are. SICK was not trained on."
        ),
        "",
        "| vectors | STS-B dev | STS-B test | SICK test |",
        "|---|---:|---:|---:|",
    ]
    if "frozen-similarity" in found:
        g = found["frozen-similarity"].figures
        lines.append(
            f"| index vectors as stored | {g['similarity_dev_cosine_spearman']:.1f} "
            f"| {g['similarity_test_cosine_spearman']:.1f} | |"
        )
    for recipe, part in made:
        cells = " | ".join(f"{part.figures[name]:.1f}" for name in ("dev", "test", "sick"))
        objective = "cosine and ranking objectives" if recipe.ranking else "cosine objective"
        lines.append(f"| adapter, {objective}, {_times(recipe.epochs)} | {cells} |")
    lines.append("| *minBERT, siamese cosine (Pearson, its own split)* | *53.0* | | |")
    return "\n".join(lines)


def _mapped(found: Found) -> str:
    """A row an objective: the mean over the seeds."""
    if mapped.STUDY not in found:
        return ""
    figures = found[mapped.STUDY].figures
    lines = [
        wrapped(
            "Sentence-BERT's objectives and two others, each alone, on a linear map of the stored "
            "vectors that begins as the identity: the encoder is not trained, so a row is seconds "
            "and only the objective differs. Trained on STS-B's pairs, a tenth of which chooses "
            "among no epoch and eight; the mean of 3 seeds, with 95 % bootstrap intervals over the "
            "pairs."
        ),
        "",
        "| objective of the map | STS-B dev | STS-B test |",
        "|---|---:|---:|",
    ]
    for name in dict.fromkeys(key.rsplit("_", 2)[0] for key in figures):
        dev, test = (with_interval(figures, f"{name}_{part}_mean") for part in ("dev", "test"))
        lines.append(f"| {name} | {dev} | {test} |")
    return "\n".join(lines)


def _missing(found: Found) -> str:
    names = [f"`{name}`" for name in catalogue.STUDIES if name not in found]
    if not names:
        return ""
    return wrapped(f"Not done yet, for want of processor time: {', '.join(names)}.")


def _distillation(found: Found) -> str:
    if (part := found.get("distillation")) is None:
        return ""
    f = part.figures
    lines = [
        "### A student of half the layers",
        "",
        wrapped(
            "Layers 1, 3 and 5 of the encoder, fine-tuned on SST-5, "
            f"{_times(distillation.EPOCHS)}, with the adapter above as teacher (temperature "
            f"{distillation.TEMPERATURE}, weight {distillation.WEIGHT}) and without. "
            "QADistilBERT's student keeps 71.8 of its teacher's 76.6 F1 on SQuAD 2.0: 94 %."
        ),
        "",
        "| SST-5 dev accuracy | seed 0 | seed 1 | mean | of the teacher's, % |",
        "|---|---:|---:|---:|---:|",
        f"| teacher, 6 layers | {f['teacher']:.1f} | | {f['teacher']:.1f} | 100 |",
    ]
    for name, title in (("alone", "student, labels only"), ("taught", "student with the teacher")):
        values = [f[f"{name}_{seed}"] for seed in distillation.SEEDS]
        lines.append(
            f"| {title} | {values[0]:.1f} | {values[1]:.1f} | {mean(values):.1f} "
            f"| {with_interval(f, name, digits=0)} |"
        )
    return "\n".join(lines)
