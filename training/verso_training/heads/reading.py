"""Train a head that answers, from questions to a folder that can be served.

``train_reader`` splits the questions, trains an adapter on the artifact's encoder (new, or
starting from a head), sets the null threshold on validation questions, measures on test questions,
writes and checks the folder. A killed run continues from its last checkpoint.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from verso_core import heads
from verso_core.errors import TrainingDataInvalid
from verso_core.heads import Calibration, Relevance, Signal, SignalName
from verso_core.questions import Paragraph
from verso_training.artifact.graphs import EncoderGraph
from verso_training.heads import graph, questions, reader, shipping
from verso_training.heads.backbone import Backbone
from verso_training.heads.context import HeadReport, TrainingContext
from verso_training.heads.fitting import Budget
from verso_training.heads.graph import Start, shaped
from verso_training.heads.modules import SpanReader
from verso_training.heads.questions import Parts, Question, Window
from verso_training.heads.reader import (
    Answer,
    Encode,
    Marks,
    answerable,
    best_threshold,
    marks,
)
from verso_training.heads.recipe import AnswerConfig, HeadRecipe
from verso_training.heads.rows import RowSplit, digest
from verso_training.heads.shipping import Trained
from verso_training.heads.signals import Interval

_TRAINED = 0.85
"""Share of the work that is training; the rest is measuring."""


@dataclass(frozen=True)
class Figures:
    """Figures of a reader on questions that it was not trained on.

    Attributes:
        threshold: The null threshold: with the best F1 on validation questions, or a stricter one
            where more of the given answers have to be right.
        best: The null threshold with the best F1, for records that a search found.
        validation: Marks at the null threshold.
        test: Marks at the null threshold, on questions not used for choices.
        test_best: The same at the threshold with the best F1.
        untuned: The same at threshold 0.
        auroc: Of the margin, test questions with an answer against those without; may be NaN.
        relevance: Corrects the null scores of all these figures; fitted on validation questions.
        answered: Makes the probability that the best answer is right out of its margin, fitted on
            validation questions.
        reliability: Metrics of it on test questions.
    """

    threshold: float
    best: float
    validation: Marks
    test: Marks
    test_best: Marks
    untuned: Marks
    auroc: Interval
    relevance: Relevance | None
    answered: Signal
    reliability: dict[str, float]

    @property
    def calibration(self) -> Calibration:
        """Return what the figures decide of a head."""
        return Calibration(
            null_threshold=self.threshold,
            found_null_threshold=self.best,
            relevance=self.relevance,
            signals={SignalName.CALIBRATED: self.answered},
        )


def train_reader(
    recipe: HeadRecipe, paragraphs: Sequence[Paragraph], context: TrainingContext
) -> HeadReport:
    """Train, set the threshold, measure and write one reader.

    Args:
        recipe: Its ``answer`` settings apply.
        paragraphs: With their questions.
        context: Of the training.

    Raises:
        RecipeInvalid: windows longer than the encoder reads.
        TrainingDataInvalid: questions that cannot be trained on.
        QuestionTooLong: one leaves no room for its context.
        HeadInvalid: the written head differs from the trained one, or ``start`` is not a reader.
        Cancelled: ``context.should_stop`` returned True.
        DiskFull: no room for a checkpoint or the new folder.
    """
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    config = shaped(recipe.answer, context.start)
    recipe = dataclasses.replace(recipe, answer=config)
    parts = questions.parts(
        paragraphs,
        validation_share=recipe.validation_share,
        test_share=recipe.test_share,
        made_up=config.made_up,
        seed=recipe.seed,
    )
    base = context.encoder(window=config.max_tokens)
    shown = _shown(parts, base, config)
    only = _trained(recipe, base, shown, context)
    figures = measured(
        only,
        base,
        config,
        encode=EncoderGraph(context.artifact, threads=recipe.threads).encode,
        validation=parts.of[RowSplit.VALIDATION],
        test=parts.of[RowSplit.TEST],
    )
    counts = {str(part): len(parts.of[part]) for part in RowSplit}
    trained = Trained(
        recipe=recipe,
        module=only,
        outputs=("start", "end"),
        samples=_samples(shown),
        provenance=context.of(digest(parts.of)),
        card=_card(figures, parts, shown=shown, start=context.start),
        calibration=figures.calibration,
        metrics=_metrics(figures, parts),
        sources=base.sources,
        max_tokens=config.max_tokens,
        stride=config.stride,
    )
    return context.published(trained, counts, contradicted=parts.contradicted)


def _trained(
    recipe: HeadRecipe,
    base: Backbone,
    shown: Mapping[RowSplit, list[Window]],
    context: TrainingContext,
) -> SpanReader:
    config = recipe.answer
    module = reader.Reader(base, config)
    only = module.only(config.layers)
    if context.start is not None:
        context.start.restore(only)
    budget = Budget.of(config, seed=recipe.seed)
    reported = str(config.layers)
    context.train(module, budget, shown, losses=module.losses, reported=reported, share=_TRAINED)
    return only.eval()


def _samples(shown: Mapping[RowSplit, list[Window]]) -> list[dict[str, NDArray[np.generic]]]:
    windows = (window for part in shown.values() for window in part)
    return graph.golden_pairs((window.ids, window.context_from) for window in windows)


def measured(
    only: SpanReader,
    base: Backbone,
    config: AnswerConfig,
    *,
    encode: Encode,
    validation: Sequence[Question],
    test: Sequence[Question],
) -> Figures:
    """Choose the null threshold on validation questions and measure on test questions.

    Args:
        only: What is exported.
        base: The encoder that it adapts.
        config: Of the windows.
        encode: The artifact's own encoder, as a worker runs it.
        validation: Chosen with.
        test: Measured on.
    """
    logits = reader.logits_of(only)

    def read(rows: Sequence[Question]) -> tuple[list[Answer], NDArray[np.float32]]:
        found = reader.answers(rows, base.tokenizer, logits=logits, config=config)
        return found, reader.sentence_cosines(rows, found, encode)

    (chosen, near), (final, far) = read(validation), read(test)
    relevance = reader.fit_relevance(validation, chosen, near)
    by_others = reader.corrected_by_others(validation, chosen, near)
    chosen = reader.corrected(chosen, near, relevance)
    final = reader.corrected(final, far, relevance)
    best = best_threshold(validation, chosen)
    precise = reader.precise_threshold(validation, by_others or chosen)
    threshold = best if precise is None else max(best, precise)
    answered = reader.fit_margin(validation, chosen)
    return Figures(
        threshold,
        best,
        marks(validation, chosen, null_threshold=threshold),
        marks(test, final, null_threshold=threshold),
        marks(test, final, null_threshold=best),
        marks(test, final, null_threshold=0.0),
        answerable(test, final),
        relevance,
        answered,
        reader.reliability(test, final, answered),
    )


def threshold_note(figures: Figures) -> str:
    """Return what a card says of the null thresholds."""
    kept = (
        f"the loosest that keeps {100 * reader.PRECISION:.0f} % of the given answers right, also "
        "if documents are drawn again from those of the questions"
    )
    which = kept if figures.threshold > figures.best else "the one with the best F1"
    return (
        f"The null threshold is chosen on validation questions only: {which}. Records that a "
        f"search found have one of their own, {figures.best:.2f}, with the best F1."
    )


def relevance_note(relevance: Relevance) -> str:
    """Return what a card says of the correction of null scores."""
    return (
        f"The null score is lowered by {relevance.weight:.2f} for each unit of cosine between the "
        f"question and the answer's sentence above {relevance.usual:.2f}, as fitted there."
    )


def _shown(parts: Parts, base: Backbone, config: AnswerConfig) -> dict[RowSplit, list[Window]]:
    """Return one window of each question.

    All parts are cut before the training, so that an error is raised at once and not after hours.
    """
    shown = {
        part: list(
            questions.windows(
                parts.of[part],
                base.tokenizer,
                max_tokens=config.max_tokens,
                stride=config.stride,
                all_windows=False,
            )
        )
        for part in RowSplit
    }
    for part in (RowSplit.TRAIN, RowSplit.VALIDATION):
        if not any(window.starts != [0] for window in shown[part]):
            raise TrainingDataInvalid(
                f"expected answers for {part} that begin and end where words do, got none"
            )
    if (count := sum(map(len, shown.values()))) < heads.GOLDEN_LINES:
        raise TrainingDataInvalid(
            f"expected {heads.GOLDEN_LINES} questions or more whose answers begin and end where "
            f"words do, got {count}"
        )
    return shown


def _metrics(figures: Figures, parts: Parts) -> dict[str, float]:
    return {
        "test_questions": float(len(parts.of[RowSplit.TEST])),
        "null_threshold": figures.threshold,
        "found_null_threshold": figures.best,
        "validation_f1": figures.validation.f1.value,
        "test_exact": figures.test.exact.value,
        "test_f1": figures.test.f1.value,
        "test_f1_answerable": figures.test.answerable_f1.value,
        "test_refused": figures.test.refused.value,
        "test_given": figures.test.given.value,
        "test_right": figures.test.right.value,
        "test_f1_best": figures.test_best.f1.value,
        "test_f1_untuned": figures.untuned.f1.value,
        "test_auroc_answerable": figures.auroc.value,
        **figures.reliability,
    }


def _card(
    figures: Figures,
    parts: Parts,
    *,
    shown: Mapping[RowSplit, Sequence[Window]],
    start: Start | None,
) -> str:
    counts = ", ".join(f"{len(parts.of[p])} {p}" for p in RowSplit)
    made = ", ".join(f"{n} {p}" for p, n in parts.made_up.items() if n)
    whole = "documents" if parts.whole_documents else "paragraphs, for there are too few documents"
    notes = [
        f"Begun {'afresh' if start is None else f'from {start.name}'}.",
        f"Questions: {counts}; split by {whole}.",
    ]
    if made:
        notes.append(f"Among them made up, without an answer: {made}.")
    if lost := len(parts.of[RowSplit.TRAIN]) - len(shown[RowSplit.TRAIN]):
        notes.append(f"Not trained on, because an answer begins or ends inside a token: {lost}.")
    if parts.contradicted:
        notes.append(f"Dropped, with an answer and without one: {parts.contradicted}.")
    notes.append(threshold_note(figures))
    if figures.relevance is not None:
        notes.append(relevance_note(figures.relevance))
    rows = {
        "validation": (figures.threshold, figures.validation),
        "test": (figures.threshold, figures.test),
        "test, best F1": (figures.best, figures.test_best),
        "test, not tuned": (0.0, figures.untuned),
    }
    return shipping.reader(rows, auroc=figures.auroc, notes=notes)
