"""Train a classifier on vectors, from rows to a folder that can be served.

``train_head`` checks the rows, trains, calibrates on rows it did not train on, measures on others,
writes and checks the folder. It prints nothing: it reports progress to ``on_progress`` and calls
``should_stop`` between two steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from verso_core import manifest
from verso_core.errors import Cancelled
from verso_core.heads import Reads, Task
from verso_training.artifact.graphs import EncoderGraph
from verso_training.config import RecipeInvalid
from verso_training.heads import confidence, shipping, signals, vectors
from verso_training.heads.context import HeadReport, TrainingContext
from verso_training.heads.recipe import HeadRecipe, check_chunk
from verso_training.heads.rows import Checked, Row, RowSplit
from verso_training.heads.shipping import Trained
from verso_training.heads.vectors import Part

_MAX_CHARACTERS = 4000
"""Most characters of a text to encode; the encoder's 256 tokens are far fewer."""
Extra = Mapping[RowSplit, signals.Signals]
"""Signals from other sources than a head's outputs, by split. Shape of each: (N,)."""


def train_head(
    recipe: HeadRecipe,
    examples: Sequence[Row],
    context: TrainingContext,
    *,
    strange: Mapping[str, NDArray[np.float32]] | None = None,
) -> HeadReport:
    """Train, calibrate, measure and write one classifier of vectors.

    Args:
        recipe: Its ``classify`` settings apply.
        examples: Labelled rows; a text without a vector is encoded by the artifact.
        context: Of the training.
        strange: Stored vectors of texts out of scope, by kind, for the card alone. Shape: (N, D).

    Raises:
        TrainingDataInvalid: rows that cannot be trained on.
        RecipeInvalid: a recipe that does not fit these rows.
        Cancelled: ``context.should_stop`` returned True.
        DiskFull: no room for the new folder.
        HeadInvalid: the written head differs from the trained one.
    """
    if recipe.task is not Task.CLASSIFY or recipe.reads is not Reads.VECTOR:
        raise RecipeInvalid(
            f"expected a classifier on vectors, got {recipe.task} on {recipe.reads}"
        )
    check_chunk(recipe, examples)
    torch.set_num_threads(recipe.threads)
    checked = context.checked(recipe, examples)
    if recipe.classify.decoder and any(row.text is None for row in examples):
        raise RecipeInvalid("classify.decoder: expected texts for the decoder, got vectors")
    stored = as_stored(checked.rows, context)
    return context.published(
        _classifier(recipe, checked, stored, context, strange=strange or {}),
        checked.counts(),
        contradicted=checked.contradicted,
        dropped_labels=checked.dropped_labels,
    )


def as_stored(examples: Sequence[Row], context: TrainingContext) -> NDArray[np.float32]:
    """Return the vectors of rows as an int8 collection stores them. Shape: (N, D), float32."""
    scale = manifest.load(context.artifact).manifest.space.int8_scale
    missing = [i for i, row in enumerate(examples) if row.vector is None]
    found = [row.vector for row in examples]
    if missing:
        graph = EncoderGraph(context.artifact, threads=torch.get_num_threads())
        for start in range(0, len(missing), 256):
            if context.should_stop():
                raise Cancelled("the training was cancelled")
            part = missing[start : start + 256]
            texts = [str(examples[i].text)[:_MAX_CHARACTERS] for i in part]
            for i, vector in zip(part, graph.encode(texts), strict=True):
                codes = np.clip(np.rint(vector * scale), -127, 127)
                found[i] = (codes / scale).astype(np.float32)
    return np.stack([vector for vector in found if vector is not None])


def held_out_signals(
    recipe: HeadRecipe, checked: Checked, stored: NDArray[np.float32], *, artifact: Path
) -> Extra:
    """Return the decoder's signals of the rows not trained on, if the recipe asks for them."""
    if not recipe.classify.decoder:
        return {}
    found = {}
    for split in (RowSplit.VALIDATION, RowSplit.TEST):
        index = [i for i, row in enumerate(checked.rows) if row.split is split]
        texts = [str(checked.rows[i].text)[:_MAX_CHARACTERS] for i in index]
        found[split] = signals.decoder_signals(
            texts, stored[index], artifact=artifact, threads=recipe.threads, coder=True
        )
    return found


def _classifier(
    recipe: HeadRecipe,
    checked: Checked,
    stored: NDArray[np.float32],
    context: TrainingContext,
    *,
    strange: Mapping[str, NDArray[np.float32]],
) -> Trained:
    """Return a trained, calibrated and measured classifier; ``stored`` goes with the rows."""
    part = {
        split: Part(
            stored[[i for i, row in enumerate(checked.rows) if row.split is split]],
            checked.targets(split),
        )
        for split in RowSplit
    }
    model = vectors.fit(
        recipe.classify,
        train=part[RowSplit.TRAIN],
        validation=part[RowSplit.VALIDATION],
        classes=len(checked.labels),
        seed=recipe.seed,
        on_progress=context.on_progress,
        should_stop=context.should_stop,
    )
    return measured(
        Trained(
            recipe=recipe,
            module=model,
            outputs=("logits", "feature") if recipe.classify.hidden else ("logits",),
            samples=[{"vector": row} for row in _samples(part)],
            provenance=context.of(checked.digest()),
        ),
        checked,
        {s: vectors.outputs(model, part[s].vectors) for s in RowSplit},
        extra=held_out_signals(recipe, checked, stored, artifact=context.artifact),
        strange={kind: vectors.outputs(model, rows) for kind, rows in strange.items()},
    )


def measured(
    trained: Trained,
    checked: Checked,
    found: Mapping[RowSplit, tuple[NDArray[np.float32], NDArray[np.float32]]],
    *,
    extra: Extra,
    strange: Mapping[str, tuple[NDArray[np.float32], NDArray[np.float32]]] | None = None,
    held_out: confidence.Outputs | None = None,
) -> Trained:
    """Calibrate a classifier on rows held out and measure it on test rows.

    Args:
        trained: Without card, labels, calibration and figures.
        checked: The rows.
        found: Logits and features of each split. Shape: (N, C) and (N, F).
        extra: Further signals of validation and test rows, or of none. Shape of each: (N,).
        strange: Logits and features of texts out of scope, by kind, for the card alone.
        held_out: Calibrate on these; None: on the validation rows.
    """
    targets = {split: checked.targets(split) for split in RowSplit}
    seed = trained.recipe.seed
    fitted = signals.fit(
        found[RowSplit.TRAIN][1], targets[RowSplit.TRAIN], classes=len(checked.labels), seed=seed
    )
    validation, test = (
        confidence.Outputs(
            *found[s], targets[s], extra.get(s, {}), np.array([r.weight for r in checked.of(s)])
        )
        for s in (RowSplit.VALIDATION, RowSplit.TEST)
    )
    none = trained.recipe.none_label
    outside = checked.labels.index(none) if none in checked.labels else None
    calibration = confidence.calibrate(
        held_out or validation, fitted, seed=seed, labels=checked.labels, outside=outside
    )
    report = confidence.report(test, calibration, fitted, labels=checked.labels, outside=outside)
    refused: list[str] = []
    if outside is not None and strange:
        refused = shipping.refusals_table(
            confidence.refusals(test, strange, calibration, fitted, outside=outside)
        )
    return dataclasses.replace(
        trained,
        card="\n".join([*refused, ""])
        + shipping.classifier(report, calibration, labels=checked.labels, notes=notes(checked)),
        labels=checked.labels,
        calibration=calibration,
        metrics=metrics(report, calibration.temperature),
        fitted=fitted,
    )


def metrics(report: confidence.Report, temperature: float) -> dict[str, float]:
    """Return the figures of a classifier that ``head.json`` holds."""
    found = {
        "test_rows": float(report.rows),
        "accuracy": report.accuracy.value,
        "macro_f1": report.macro_f1.value,
        "temperature": temperature,
    }
    for name, signal in report.signals.items():
        found[f"augrc/{name}"] = signal.augrc.value
        found[f"accuracy_at_80/{name}"] = signal.accuracy_at_80.value
        found[f"auroc/{name}"] = signal.auroc.value
        found[f"fpr95/{name}"] = signal.fpr95.value
    for name, scope in report.scope.items():
        found[f"scope_auroc/{name}"] = scope.auroc.value
        found[f"scope_fpr95/{name}"] = scope.fpr95.value
    for c in range(1, 11):
        for name, curve in report.curve.items():
            found[f"risk_at_{10 * c}/{name}"] = curve[c - 1]
    for rate, (coverage, wrong) in report.accepted.items():
        found[f"accepted_at_{100 * float(rate):g}/coverage"] = coverage
        found[f"accepted_at_{100 * float(rate):g}/risk"] = wrong
    for label, source in report.sources.items():
        prefix = f"source/{label}/" if label else "source/"
        found[f"{prefix}rows"] = float(source.rows)
        found[f"{prefix}accuracy"] = source.accuracy.value
        found[f"{prefix}macro_f1"] = source.macro_f1.value
        found[f"{prefix}calibration_error"] = source.error.value
        for rate, (coverage, wrong) in source.accepted.items():
            found[f"{prefix}accepted_{100 * float(rate):g}/coverage"] = coverage
            found[f"{prefix}accepted_{100 * float(rate):g}/risk"] = wrong
    for one in report.calibration:
        found[f"confidence_{100 * one.below:g}/rows"] = float(one.rows)
        found[f"confidence_{100 * one.below:g}/confidence"] = one.confidence
        found[f"confidence_{100 * one.below:g}/accuracy"] = one.accuracy
    return found


def notes(checked: Checked) -> tuple[str, ...]:
    """Return the lines of a card on how many rows there were, and which were dropped."""
    counts = ", ".join(f"{count} {split}" for split, count in checked.counts().items())
    found = [f"Rows: {counts}."]
    if checked.dropped_labels:
        found.append(f"Dropped, too few rows: {', '.join(checked.dropped_labels)}.")
    if checked.contradicted:
        found.append(f"Dropped, several labels for one text: {checked.contradicted} texts.")
    return tuple(found)


def _samples(part: Mapping[RowSplit, Part]) -> NDArray[np.float32]:
    """Return inputs of golden samples: test rows, and others where these are few. Shape: (n <= 12,
    D)."""
    order = (RowSplit.TEST, RowSplit.VALIDATION, RowSplit.TRAIN)
    return np.concatenate([part[split].vectors for split in order])[:12]
