"""How much of a head's figures is its seed? Mean and spread of heads that differ in nothing else.

    python -m studies seeds models/heads/log-failures/VERSION OTHER OTHER --out models/heads

The figures are those of each head's own measurement of its test rows, by source. They are written
into the card of the first head, which is a new version then: the card is one of its files, and its
weights and settings stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from verso_core import heads
from verso_core.errors import HeadInvalid
from verso_core.heads import Head
from verso_training.heads import recipe as recipes
from verso_training.heads import shipping
from verso_training.heads.recipe import HeadRecipe

TITLE = "## Seeds"
_FIGURES = {"accuracy": "accuracy", "macro_f1": "macro-F1", "calibration_error": "ECE"}


def section(compared: Sequence[Head]) -> str:
    """Return the section of a card, Markdown; the first head is the one that the card is of.

    Raises:
        HeadInvalid: fewer than two heads, other rows, settings or encoders, one seed twice, or no
            figures by source.
    """
    _check(compared)
    seeds = [_recipe(head).seed for head in compared]
    return "\n".join(
        [
            TITLE,
            "",
            f"Trained {len(seeds)} times on the same rows; this version has seed {seeds[0]}, the",
            "default. Mean ± standard deviation of the figures on test rows, and each in brackets,",
            "this version first. Nothing was chosen by them.",
            "",
            *_means(compared),
            "",
            "What each came to: the share accepted, and after the colon the errors among it, in",
            "percent with their 95 % intervals (Clopper and Pearson).",
            "",
            *_accepted(compared, seeds),
        ]
    )


def publish(folders: Sequence[Path], *, artifact: Path, out_dir: Path) -> Path:
    """Write the first head again with the section in its card; return the folder of its version.

    Raises:
        HeadInvalid: see ``section``; or a head cannot be loaded.
    """
    found = [heads.load(folder).head for folder in folders]
    text = section(found)
    card = (folders[0] / heads.CARD).read_text(encoding="utf-8")
    before = card.partition(f"\n{TITLE}\n")[0].rstrip("\n")
    return shipping.publish_again(
        folders[0], found[0], f"{before}\n\n{text}\n", artifact=artifact, out_dir=out_dir
    )


def _recipe(head: Head) -> HeadRecipe:
    return recipes.parse(head.lineage.recipe)


def _check(compared: Sequence[Head]) -> None:
    if len(compared) < 2:
        raise HeadInvalid(f"expected two heads or more to compare, got {len(compared)}")
    first = compared[0]
    for other in compared[1:]:
        if replace(_recipe(other), seed=_recipe(first).seed) != _recipe(first):
            raise HeadInvalid(f"{other.version} has other settings than {first.version}")
        if other.lineage.data_sha256 != first.lineage.data_sha256:
            raise HeadInvalid(f"{other.version} has other rows than {first.version}")
        if other.lineage.base_artifact != first.lineage.base_artifact:
            raise HeadInvalid(f"{other.version} has another encoder than {first.version}")
    seeds = [_recipe(head).seed for head in compared]
    if len(set(seeds)) < len(seeds):
        raise HeadInvalid(f"expected a seed a head, got {seeds}")
    if not _sources(first):
        raise HeadInvalid(f"{first.version} has no figures by source")


def _sources(head: Head) -> list[str]:
    return sorted({name.split("/")[1] for name in head.metrics if name.startswith("source/")})


def _means(compared: Sequence[Head]) -> list[str]:
    rows = ["| source | rows | accuracy | macro-F1 | ECE |", "|---|---:|---:|---:|---:|"]
    for source in _sources(compared[0]):
        cells = []
        for figure in _FIGURES:
            values = [100 * head.metrics[f"source/{source}/{figure}"] for head in compared]
            each = ", ".join(f"{value:.1f}" for value in values)
            cells.append(f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f} ({each})")
        count = compared[0].metrics[f"source/{source}/rows"]
        rows.append(f"| {source} | {count:.0f} | " + " | ".join(cells) + " |")
    return rows


def _accepted(compared: Sequence[Head], seeds: Sequence[int]) -> list[str]:
    rates = [float(rate) for rate in compared[0].calibration.conformal]
    asked = " | ".join(f"≤ {100 * rate:g} %" for rate in rates)
    rows = [f"| source | seed | {asked} |", "|---|---:|" + "---:|" * len(rates)]
    for source in _sources(compared[0]):
        for head, seed in zip(compared, seeds, strict=True):
            cells = " | ".join(_cell(head, source, rate) for rate in rates)
            rows.append(f"| {source} | {seed} | {cells} |")
    return rows


def _cell(head: Head, source: str, rate: float) -> str:
    name = f"source/{source}/accepted_{100 * rate:g}"
    rows, coverage = head.metrics[f"source/{source}/rows"], head.metrics[f"{name}/coverage"]
    errors = shipping.share_of(head.metrics[f"{name}/risk"], of=coverage * rows)
    return f"{shipping.share_of(coverage, of=rows)}: {errors}"
