"""The context of a training: artifact, checkpoints and output folder.

The steps are the same for every head that reads tokens: read the artifact's encoder, train an
adapter on it from the last checkpoint, end the training by held-out rows, write and check the
measured head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from torch import Tensor, nn

from verso_core import heads, manifest
from verso_core.heads import Head
from verso_training.config import RecipeInvalid
from verso_training.heads import backbone, rows, shipping
from verso_training.heads.backbone import Backbone
from verso_training.heads.fitting import AdapterRun, Budget, Example
from verso_training.heads.graph import Start
from verso_training.heads.recipe import HeadRecipe
from verso_training.heads.rows import Checked, Row, RowSplit
from verso_training.heads.shipping import Provenance, Trained
from verso_training.heads.vectors import OnProgress, Progress, ShouldStop

_E = TypeVar("_E", bound=Example)


@dataclass(frozen=True)
class HeadReport:
    """The result of a training.

    Attributes:
        folder: Of the new version.
        head: Its ``head.json``.
        rows: How many rows each split had.
        dropped_labels: Labels with too few rows.
        contradicted: Texts, questions or pairs dropped because of contradictory labels.
    """

    folder: Path
    head: Head
    rows: Mapping[str, int]
    dropped_labels: tuple[str, ...] = ()
    contradicted: int = 0


@dataclass(frozen=True)
class TrainingContext:
    """The inputs of a training beside its recipe and its rows.

    Attributes:
        artifact: The artifact whose encoder the head reads.
        out_dir: ``models/heads``; the head becomes ``NAME/VERSION`` below it.
        provenance: Names and licence of the data; the hash of the rows is filled in.
        run: Folder for checkpoints; training continues from an existing one. None keeps none.
        on_progress: Called several times a second at most.
        should_stop: Called between steps.
        start: A head to start from, None to start from the encoder.
    """

    artifact: Path
    out_dir: Path
    provenance: Provenance
    run: Path | None = None
    on_progress: OnProgress = lambda _: None
    should_stop: ShouldStop = lambda: False
    start: Start | None = None

    def checked(self, recipe: HeadRecipe, examples: Sequence[Row]) -> Checked:
        """Check and split labelled rows.

        Raises:
            TrainingDataInvalid: rows that cannot be trained on.
        """
        return rows.check(
            examples,
            dim=manifest.load(self.artifact).manifest.space.dim,
            tokens=recipe.reads.tokens,
            validation_share=recipe.validation_share,
            test_share=recipe.test_share,
        )

    def encoder(self, *, window: int) -> Backbone:
        """Read the artifact's encoder.

        Raises:
            RecipeInvalid: ``window`` is longer than its positions.
        """
        base = backbone.load(self.artifact)
        most = int(base.bert.config.max_position_embeddings)
        if window > most:
            raise RecipeInvalid(f"expected max_tokens <= {most}, got {window}")
        return base

    def of(self, digest: str) -> Provenance:
        """Return the provenance of a head that was trained on these rows."""
        return replace(self.provenance, data_sha256=digest)

    def train(
        self,
        module: nn.Module,
        budget: Budget,
        parts: Mapping[RowSplit, Sequence[_E]],
        *,
        losses: Callable[[Sequence[_E]], Mapping[str, Tensor]],
        reported: str,
        share: float = 1.0,
    ) -> None:
        """Train a module's own weights on the training part; the validation part ends it.

        Args:
            module: Left in evaluation mode.
            budget: How long.
            parts: Examples by split; those of the test part are not used.
            losses: Of one batch, by name.
            reported: The loss that progress reports.
            share: Share of the whole work.

        Raises:
            Cancelled: ``should_stop`` returned True.
            DiskFull: no room for a checkpoint.
        """

        def report(progress: Progress) -> None:
            figures = {"loss": progress.metrics[f"loss/{reported}"]}
            if "validation_loss" in progress.metrics:
                figures["validation_loss"] = progress.metrics["validation_loss"]
            self.on_progress(Progress(share * progress.share, figures))

        AdapterRun(
            module,
            budget,
            main=parts[RowSplit.TRAIN],
            held_out=parts[RowSplit.VALIDATION],
            losses=losses,
            folder=self.run,
        ).train(on_progress=report, should_stop=self.should_stop)

    def published(
        self,
        trained: Trained,
        counts: Mapping[str, int],
        *,
        contradicted: int,
        dropped_labels: tuple[str, ...] = (),
    ) -> HeadReport:
        """Write a measured head and return its report.

        Raises:
            HeadInvalid, DiskFull: as :func:`shipping.publish` says.
        """
        folder = shipping.publish(trained, artifact=self.artifact, out_dir=self.out_dir)
        self.on_progress(Progress(1.0, dict(trained.metrics)))
        return HeadReport(folder, heads.load(folder).head, counts, dropped_labels, contradicted)
