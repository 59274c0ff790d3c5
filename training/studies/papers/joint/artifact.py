"""A trained arm: what it wins over another one, and an artifact of it.

An artifact has the arm's encoder and decoder, weights stored as int8, and rank tables of its own;
its n-gram tables are those of the artifact that the arm started from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from studies.papers.joint import measure
from studies.papers.joint.arms import Arm, JointEncoder, Trained
from studies.papers.joint.run import OLD_SPACE, STATE, Weights
from studies.papers.joint.study import data_of, folder_of, start
from studies.papers.kept import Figures, mean, table, with_interval
from studies.quality.classification import Bench
from verso_client.cli import evaluation
from verso_core import manifest
from verso_training import encoder
from verso_training.artifact import publish, tuning
from verso_training.config import Recipe, RecipeInvalid
from verso_training.data import dataset, sources
from verso_training.data.dataset import Dataset
from verso_training.data.sources import Chunk, Document, Split
from verso_training.decoder.model import Decoder
from verso_training.decoder.train import round_int8
from verso_training.encoder import SentenceEncoder

SEARCHES = ("ir_scifact", "ir_cacm")
"""Sets whose test questions are asked."""


@dataclass(frozen=True)
class Pair:
    """An encoder and the decoder that reads its vectors."""

    encoder: SentenceEncoder | JointEncoder
    decoder: Decoder


def trained(bench: Bench, arm: Arm, base: SentenceEncoder, *, folder: Path) -> Pair:
    """Load what an arm has learnt.

    Args:
        bench: Has the artifact that the arm started from.
        arm: Which.
        base: With the weights that the arm started from. It is changed in place.
        folder: Of all arms.
    """
    state = torch.load(folder / arm.name / STATE, weights_only=True, map_location="cpu")
    pair = Pair(JointEncoder(base.eval(), arm.trained), start(bench, arm))
    pair.encoder.load_state_dict(state["encoder"])
    pair.decoder.load_state_dict(state["decoder"])
    return pair


def gains(
    one: Pair, other: Pair, tokenizer: Tokenizer, *, bench: Bench, held: Dataset, scale: float
) -> Figures:
    """Return what one pair wins over another, paired, and what a record takes; with intervals.

    Bits a record, by kind of text, over its held-out chunks; nDCG@10 by int8 vectors, over the
    claims that guard the training and over the test questions of ``SEARCHES``.
    """
    texts = [chunk.text for chunk in held.chunks]
    as_met = partial(round_int8, scale=scale)
    spent = [
        measure.by_chunk(
            pair.decoder, held, measure.encode(pair.encoder, tokenizer, texts), as_met=as_met
        )
        for pair in (one, other)
    ]
    families = np.array([chunk.family for chunk in held.chunks])
    saved = spent[1] - spent[0]
    figures: dict[str, float] = {}
    for family in sorted({*families.tolist()}):
        figures |= mean(f"{family}, bits of a record", spent[0][families == family])
        figures |= mean(f"{family}, bits won", saved[families == family])
    searches = {"ir_scifact, training claims": measure.guards(bench.data).search}
    searches |= {name: evaluation.read(bench.data / name, split="test") for name in SEARCHES}
    for name, asked in searches.items():
        reached = [
            measure.ndcg(pair.encoder, tokenizer, asked, scale=scale) for pair in (one, other)
        ]
        figures |= mean(f"{name}, nDCG@10", reached[0] - reached[1])
    return figures


def run(
    bench: Bench,
    arms: Mapping[str, Arm],
    name: str,
    against: str | None,
    *,
    recipe: Recipe,
    losses: Weights = OLD_SPACE,
    out: Path | None = None,
    load: Callable[[], tuple[SentenceEncoder, Tokenizer]] | None = None,
) -> Figures:
    """Return what an arm wins over another one, or over the artifact that both started from.

    Args:
        bench: Data, artifact, and the working folder of the study.
        arms: By name.
        name: Of the arm.
        against: Name of the other one; the artifact without one.
        recipe: Of both.
        losses: Of both.
        out: Where an artifact of the arm is written, if it is.
        load: Returns the encoder that the arms started from, new at each call, and its tokenizer.
    """
    load = load or partial(encoder.load, encoder.shipped_folder())
    folder = folder_of(bench, recipe, losses)
    (base, tokenizer), (old, _) = load(), load()
    one = trained(bench, arms[name], base, folder=folder)
    other = (
        Pair(old, start(bench, Arm(Trained.NOTHING)))
        if against is None
        else trained(bench, arms[against], old, folder=folder)
    )
    if out is not None:
        documents, foreign = sources.documents(bench.data), sources.foreign(bench.data)
        write(one, tokenizer, documents, bench=bench, recipe=recipe, folder=out, foreign=foreign)
    scale = manifest.load(bench.artifact).manifest.space.int8_scale
    held = dataset.load(data_of(bench, recipe), Split.VALIDATION)
    return gains(one, other, tokenizer, bench=bench, held=held, scale=scale)


def write(
    pair: Pair,
    tokenizer: Tokenizer,
    documents: Iterable[Document],
    *,
    bench: Bench,
    recipe: Recipe,
    folder: Path,
    foreign: Iterable[Chunk] = (),
) -> None:
    """Write an artifact of a pair.

    Args:
        pair: Of an arm.
        tokenizer: The encoder's.
        documents: As for training; the held-out ones yield rank tables, figures and samples.
        bench: Has the artifact that the arm started from.
        recipe: Of the arm.
        folder: Of the new artifact.
        foreign: Texts of sets that were not trained on, for the figures only.

    Raises:
        RecipeInvalid: The arm is an adapter.
    """
    if isinstance(pair.encoder, JointEncoder) and pair.encoder.adapter is not None:
        raise RecipeInvalid("expected an arm without an adapter, for which no graph has a place")
    about = manifest.load(bench.artifact)
    base = pair.encoder.base if isinstance(pair.encoder, JointEncoder) else pair.encoder
    made = publish.Trained(
        recipe=replace(recipe, model=pair.decoder.config),
        decoder=pair.decoder.eval(),
        decoder_tokenizer=tuning.tokenizer(about),
        encoder=base.eval(),
        encoder_tokenizer=tokenizer,
        int8_scale=about.manifest.space.int8_scale,
        command=f"python -m studies joint --recipe {recipe.name}",
        run=f"Trained together with its encoder, {recipe.train.max_steps} steps at most.",
        encoder_about="all-MiniLM-L6-v2 (Apache-2.0), trained further together with the decoder",
    )
    publish.publish(
        made, documents, tables=bench.artifact, folder=folder, name=folder.name,
        foreign=list(foreign),
    )  # fmt: skip


def page(figures: Figures) -> str:
    """Return the table of what a record takes by an arm, and of what the arm wins."""
    names = [key for key in figures if not key.endswith(("/low", "/high"))]
    return table(["", "arm"], [[name, with_interval(figures, name)] for name in names])
