"""Write a head's folder again: the same weights, and figures that are measured once more."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studies.documents import served
from studies.documents.data import Document
from studies.quality import selection
from studies.quality.job import Job, command, kept_note
from verso_core import heads, manifest
from verso_core.errors import HeadInvalid
from verso_core.heads import Calibration, Head
from verso_training.heads import confidence, graph, shipping, vector_classifier
from verso_training.heads.backbone import Backbone
from verso_training.heads.context import TrainingContext
from verso_training.heads.modules import CrossEncoder
from verso_training.heads.recipe import HeadRecipe
from verso_training.heads.rows import Checked, RowSplit
from verso_training.heads.shipping import Provenance

_SAME = 1e-6
"""Difference of two shares of the same rows, at most."""


def publish(
    start: Head,
    folder: Path,
    recipe: HeadRecipe,
    *,
    text: str,
    figures: Mapping[str, float],
    provenance: Provenance,
    artifact: Path,
    out_dir: Path,
    calibration: Calibration | None = None,
) -> Head:
    """Write the version of a head that has the files of another, and a card of its own.

    Args:
        start: The other version.
        folder: Of it.
        recipe: That it was trained by.
        text: Figures and notes of the card, Markdown.
        figures: Of ``head.json``; those that are not finite are left out.
        provenance: Of the rows.
        artifact: Whose encoder the head reads.
        out_dir: ``models/heads``.
        calibration: In the place of the other version's.

    Raises:
        HeadInvalid: the files are not those of the head.
    """
    created = datetime.now(UTC).replace(microsecond=0)
    made = replace(provenance, command=command(recipe, weights=start.version))
    lineage = start.lineage.model_copy(
        update={"command": made.command, "machine": shipping.machine(), "created": created}
    )
    head = start.model_copy(
        update={
            "created": created,
            "calibration": calibration or start.calibration,
            "metrics": {name: value for name, value in figures.items() if math.isfinite(value)},
            "lineage": lineage,
        }
    )
    card = shipping.card(recipe, made, text, created)
    written = shipping.publish_again(folder, head, card, artifact=artifact, out_dir=out_dir)
    return heads.load(written).head


def classifier(
    recipe: HeadRecipe,
    folder: Path,
    rows: Checked,
    context: TrainingContext,
    *,
    strange: Mapping[str, NDArray[np.float32]],
) -> Head:
    """Measure the weights of a classifier on vectors again.

    Raises:
        HeadInvalid: its figures on test rows were others: they are not the rows that it was
            measured on.
    """
    head = heads.load(folder).head
    session = graph.session(folder / heads.GRAPH, {})

    def said(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        logits, *features = session.run(None, {"vector": vectors})
        return logits, features[0] if features else vectors

    vectors = np.stack([row.vector for row in rows.of(RowSplit.TEST) if row.vector is not None])
    test = confidence.Outputs(*said(vectors), rows.targets(RowSplit.TEST))
    none = recipe.none_label
    outside = head.labels.index(none) if none in head.labels else None
    opening = ""
    if outside is not None and strange:
        refused = confidence.refusals(
            test,
            {kind: said(own) for kind, own in strange.items()},
            head.calibration,
            served.statistics(folder),
            outside=outside,
        )
        opening = "\n".join([*shipping.refusals_table(refused), ""])
    return _classifier(recipe, folder, rows, context, test=test, opening=opening, outside=outside)


def documents(
    recipe: HeadRecipe,
    folder: Path,
    rows: Checked,
    context: TrainingContext,
    *,
    read: Callable[[Sequence[str]], Sequence[Document]],
    opening: str,
) -> Head:
    """Measure the weights of a classifier of documents again; its calibration stays.

    Args:
        recipe: That it was trained by.
        folder: Of the head.
        rows: That it was measured on.
        context: Of the training.
        read: Reads texts.
        opening: What the card says first.

    Raises:
        HeadInvalid: as for ``classifier``.
    """
    texts = [str(row.text) for row in rows.of(RowSplit.TEST)]
    test = served.outputs(folder, read(texts), rows.targets(RowSplit.TEST))
    return _classifier(recipe, folder, rows, context, test=test, opening=opening, outside=None)


def _classifier(
    recipe: HeadRecipe,
    folder: Path,
    rows: Checked,
    context: TrainingContext,
    *,
    test: confidence.Outputs,
    opening: str,
    outside: int | None,
) -> Head:
    head = heads.load(folder).head
    report = confidence.report(
        test, head.calibration, served.statistics(folder), labels=head.labels, outside=outside
    )
    figures = vector_classifier.metrics(report, head.calibration.temperature)
    for name in ("test_rows", "accuracy", "macro_f1"):
        if abs(figures[name] - head.metrics[name]) > _SAME:
            raise HeadInvalid(
                f"{head.version}: expected {name} {head.metrics[name]:.6g}, got {figures[name]:.6g}"
            )
    notes = (*vector_classifier.notes(rows), "", kept_note(head))
    text = opening + shipping.classifier(report, head.calibration, labels=head.labels, notes=notes)
    return publish(
        head,
        folder,
        recipe,
        text=text,
        figures=figures,
        provenance=context.of(head.lineage.data_sha256),
        artifact=context.artifact,
        out_dir=context.out_dir,
    )


SCORED = Provenance(
    ("qa_selqa (test part)", "qa_squad (training articles)", "nli_snli (validation part)"),
    "Apache-2.0 (SelQA), CC BY-SA 4.0 (SQuAD, SNLI)",
    "",
)
"""Of the head `pairs`, without command and digest."""


def scorer(recipe: HeadRecipe, job: Job, base: Backbone, module: CrossEncoder) -> Head:
    """Measure the weights of a scorer again."""
    assert job.weights is not None
    start = graph.load(job.weights, space=manifest.load(job.artifact).manifest.space.id)
    start.restore(module)
    figures = selection.scorer(
        module.eval(), base, data=job.data, max_tokens=recipe.score.max_tokens
    )
    return publish(
        start.head,
        job.weights,
        recipe,
        text=f"{selection.scorer_card(figures)}\n\n{kept_note(start.head)}",
        figures=selection.values(figures),
        provenance=replace(SCORED, data_sha256=start.head.lineage.data_sha256),
        artifact=job.artifact,
        out_dir=job.out_dir,
    )
