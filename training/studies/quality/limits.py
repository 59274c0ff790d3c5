"""Choose the limits of sources of a head that reads documents; its weights and thresholds stay.

What is chosen, by which rule and on which assumption: ``confidence.source_limits``. A training
chooses the limits with everything else; this adds them to a head that was trained before, by the
validation rows that it was calibrated on. A head that was calibrated on folds has them from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from studies.documents import served
from studies.documents.data import Document
from studies.quality import again
from studies.quality.job import kept_note
from verso_core import manifest
from verso_core.errors import HeadInvalid
from verso_core.heads import Head
from verso_training.heads import confidence, graph, shipping, vector_classifier
from verso_training.heads import recipe as recipes
from verso_training.heads.confidence import Report, source_limits
from verso_training.heads.context import TrainingContext
from verso_training.heads.recipe import HeadRecipe
from verso_training.heads.rows import Checked, RowSplit


def publish(
    folder: Path,
    recipe: HeadRecipe,
    rows: Checked,
    context: TrainingContext,
    *,
    read: Callable[[Sequence[str]], Sequence[Document]],
    shifts: Mapping[str, str],
) -> Head:
    """Write the version of a head that has limits of its sources, measured on the test rows.

    One that was calibrated on folds held out keeps its limits: no weights of it say those rows.

    Args:
        folder: Of the head.
        recipe: That it was trained by.
        rows: That it was trained, calibrated and measured on.
        context: Of the training.
        read: Reads texts.
        shifts: How the test rows of each source are apart from its training rows.

    Raises:
        SpaceMismatch: the head reads another space than the context's artifact has.
        HeadInvalid: it was trained by another recipe or on other rows.
    """
    start = graph.load(folder, space=manifest.load(context.artifact).manifest.space.id).head
    _check(start, recipe, rows)
    if recipe.classify.folds:
        opening = _opening(shifts)
        return again.documents(recipe, folder, rows, context, read=read, opening=opening)
    fitted = served.statistics(folder)
    validation, test = (
        served.outputs(folder, read([str(row.text) for row in rows.of(split)]), rows.targets(split))
        for split in (RowSplit.VALIDATION, RowSplit.TEST)
    )
    limits = source_limits.fit(
        validation.logits,
        validation.targets,
        temperature=start.calibration.temperature,
        labels=start.labels,
    )
    calibration = start.calibration.model_copy(update={"source_limits": limits})
    before, after = (
        confidence.report(validation, one, fitted, labels=start.labels, rounds=1)
        for one in (start.calibration, calibration)
    )
    report = confidence.report(test, calibration, fitted, labels=start.labels)
    notes = (*vector_classifier.notes(rows), "", kept_note(start), _cost(before, after))
    return again.publish(
        start,
        folder,
        recipe,
        text=_opening(shifts)
        + shipping.classifier(report, calibration, labels=start.labels, notes=notes),
        figures=vector_classifier.metrics(report, calibration.temperature),
        provenance=context.of(start.lineage.data_sha256),
        artifact=context.artifact,
        out_dir=context.out_dir,
        calibration=calibration,
    )


def _opening(shifts: Mapping[str, str]) -> str:
    """Return what a card says first: how its test rows differ from what was trained on."""
    each = "; ".join(f"`{source}` {shift}" for source, shift in sorted(shifts.items()))
    return f"No test row is of the time or project of a training row. Split: {each}.\n\n"


def _check(start: Head, recipe: HeadRecipe, rows: Checked) -> None:
    if recipes.parse(start.lineage.recipe) != recipe:
        raise HeadInvalid(f"{start.version} was trained by other settings")
    if start.lineage.data_sha256 != rows.digest():
        raise HeadInvalid(f"{start.version} was trained on other rows")


def _cost(before: Report, after: Report) -> str:
    """Return the sentence of a card on what the limits withhold of the validation rows."""
    lost = {
        source: max(
            coverage - after.sources[source].accepted[rate][0]
            for rate, (coverage, _) in one.accepted.items()
        )
        for source, one in before.sources.items()
    }
    each = ", ".join(f"`{source}` {100 * share:.1f}" for source, share in lost.items())
    return (
        "The limits of sources were chosen on the validation rows, the thresholds are those of "
        "before. Points of coverage that the limits cost these rows, at whichever error rate it is "
        f"most: {each}."
    )
