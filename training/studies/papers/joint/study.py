"""The arms at an equal budget, one after the other."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from tokenizers import Tokenizer

from studies.comparison.runs import placed
from studies.papers.joint import examples, measure
from studies.papers.joint.arms import ARMS, Arm, JointEncoder, Trained
from studies.papers.joint.run import OLD_SPACE, JointRun, Models, Weights
from studies.papers.kept import Figures, Kept, Parts, table, with_interval
from studies.quality.classification import Bench
from verso_core import manifest
from verso_training import config, device, encoder
from verso_training.artifact import tuning, weights
from verso_training.config import Conditioning, Recipe
from verso_training.data import chunks, dataset, sources
from verso_training.data.sources import Split
from verso_training.decoder.model import Decoder

STUDY = "joint"
_FRESH = ("vector_memory.", ".cross.")
"""Weights that read a vector, by parts of their names."""


def run(
    bench: Bench,
    *,
    recipe: Recipe | None = None,
    losses: Weights = OLD_SPACE,
    arms: Iterable[Arm] = ARMS,
    load: Callable[[], tuple[encoder.SentenceEncoder, Tokenizer]] | None = None,
) -> Parts:
    """Train and measure the arms.

    Args:
        bench: Data, artifact and working folder.
        recipe: Of every arm; ``joint`` by default. What was kept of one serves no other.
        losses: Weights of the losses.
        arms: Which.
        load: Returns the encoder to start from, new at each call, and its tokenizer.
    """
    recipe = recipe or placed(config.load("joint"))
    load = load or partial(encoder.load, encoder.shipped_folder())
    data = prepared(bench, recipe, load, folder=data_of(bench, recipe))
    kept = Kept(folder_of(bench, recipe, losses))
    measured = partial(_measured, bench, recipe=recipe, load=load, losses=losses, data=data)
    return {
        arm.name: kept.of(arm.name, partial(measured, arm, folder=kept.folder / arm.name))
        for arm in arms
    }


def data_of(bench: Bench, recipe: Recipe) -> Path:
    """Return the folder of the chunks that a recipe's arms read."""
    return bench.work / "papers" / recipe.name / "data"


def folder_of(bench: Bench, recipe: Recipe, losses: Weights) -> Path:
    """Return the folder of the arms: minutes, and the weight of the old cosines if another."""
    minutes = f"{recipe.train.minutes:g}"
    name = minutes if losses == OLD_SPACE else f"{minutes}-{losses.similarity:g}"
    return bench.work / "papers" / recipe.name / name


def prepared(
    bench: Bench,
    recipe: Recipe,
    load: Callable[[], tuple[encoder.SentenceEncoder, Tokenizer]],
    *,
    folder: Path,
) -> Path:
    """Return the folder of chunks with the artifact's tokens and the old vectors."""
    if (folder / "done").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    tokens = tuning.tokenizer(manifest.load(bench.artifact))
    model, words = load()
    near = device.named(recipe.train.device)
    rng = random.Random(recipe.data.seed)
    pools: dict[Split, list[sources.Document]] = {split: [] for split in Split}
    for document in sources.documents(bench.data):
        pools[document.split].append(document)
    for split, pool in pools.items():
        budgets = dataset.budgets_of(pool, recipe.data, total_bytes=recipe.data.total_bytes)
        drawn = chunks.draw(pool, budgets=budgets, rng=rng)
        if split is Split.VALIDATION:
            drawn = dataset.first_of_each_family(drawn, recipe.data.validation_chunks)
        fitted = list(chunks.fit_tokens(drawn, tokens, max_tokens=recipe.model.max_tokens))
        kept = [chunk for chunk, _ in fitted]
        vectors = encoder.encode(
            model,
            words,
            texts=[chunk.text for chunk in kept],
            device=near,
            bfloat16=recipe.train.bfloat16,
        )
        dataset.write(folder, split, kept, tokens=[ids for _, ids in fitted], vectors=vectors)
    (folder / "done").touch()
    return folder


def _measured(
    bench: Bench,
    arm: Arm,
    *,
    recipe: Recipe,
    load: Callable[[], tuple[encoder.SentenceEncoder, Tokenizer]],
    losses: Weights,
    data: Path,
    folder: Path,
) -> Figures:
    torch.manual_seed(recipe.train.seed)
    about = manifest.load(bench.artifact).manifest
    old, words = load()
    base, _ = load()
    old.requires_grad_(False)
    made = Models(JointEncoder(base.eval(), arm.trained), start(bench, arm), old, words)
    scale = about.space.int8_scale
    one = JointRun(
        recipe, made, examples.read(bench.data, words),
        data=data, folder=folder, scale=scale, weights=losses,
    )  # fmt: skip
    one.train()
    held = dataset.load(data, Split.VALIDATION)
    vectors = measure.encode(made.encoder, words, [chunk.text for chunk in held.chunks])
    search = partial(measure.searched, made.encoder, words, measure.guards(bench.data), scale=scale)
    # An encoder that stood still searches as it did, whatever was trained to read its vectors.
    still = arm.trained is Trained.NOTHING
    return {
        "steps": one.progress.step,
        "tokens": one.progress.tokens,
        **measure.bits(made.decoder, held, vectors, scale=scale),
        **(Kept(data).of("search", search) if still else search()),
    }


def start(bench: Bench, arm: Arm) -> Decoder:
    """Return the artifact's decoder; where the arm says so, what reads a vector is random."""
    about = manifest.load(bench.artifact).manifest
    shipped = weights.decoder(bench.artifact, about.codec, vector_dim=about.space.dim)
    if not arm.fresh and arm.conditioning is Conditioning.MEMORY:
        return shipped
    made = Decoder(replace(shipped.config, conditioning=arm.conditioning))
    known = {
        name: weight
        for name, weight in shipped.state_dict().items()
        if not any(part in name for part in _FRESH)
    }
    missing, unexpected = made.load_state_dict(known, strict=False)
    if unexpected or not all(any(part in name for part in _FRESH) for name in missing):
        raise RuntimeError(f"expected the decoder's own weights, got {missing} {unexpected}")
    return made


def page(found: Parts) -> str:
    """Return the tables: what a vector saves, and what the space is worth to a search."""
    families = [key.removesuffix("/saved") for key in next(iter(found.values())) if "/saved" in key]
    columns = ["arm", "steps"]
    for family in families:
        columns += [f"{family}: bits a record", "the vector saves"]
    rows, spaces = [], []
    for name, f in found.items():
        cells = [f"{f['steps']:,.0f}"]
        for family in families:
            cells += [f"{f[f'{family}/vector']:.0f}", f"{f[f'{family}/saved']:.0f}"]
        rows.append([name, *cells])
        spaces.append([name, with_interval(f, "sts-b"), with_interval(f, "scifact")])
    kept = table(["arm", "STS-B dev, Spearman", "SciFact train, nDCG@10"], spaces)
    return f"{table(columns, rows)}\n\n{kept}"
