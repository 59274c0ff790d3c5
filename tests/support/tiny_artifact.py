"""Build a small complete artifact for tests: same layout, seconds to make, no downloads.

    python -m tests.support.tiny_artifact OUT

Texts are made up from templates of log lines and sentences. The encoder is random, with a fixed
seed. The decoder is trained for a few seconds. Texts are reconstructed exactly, as with any
artifact; the size of the patches means nothing.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.untrained_encoder import untrained
from tokenizers import Tokenizer

from verso_training import config
from verso_training.artifact import publish
from verso_training.artifact.publish import Trained
from verso_training.config import Recipe
from verso_training.data import dataset
from verso_training.data.sources import Document, Split
from verso_training.decoder.train import Run, describe

_TEMPLATES = (
    "{time} {level} {service}[{number}]: request {hex} finished in {number} ms",
    "{time} {level} {service}[{number}]: connection to {service} at 10.0.{small}.{small} {fault}",
    "{time} {level} {service}: worker {small} of {small} {fault}, retry in {small} s",
    "{time} FAILED tests/test_{service}.py::test_{noun}_{verb} - AssertionError: {number} != {hex}",
    "\tat org.example.{service}.{noun}.{verb}({noun}.java:{number})",
    "The {noun} {verb}s every {noun} that the {service} {verb}ed before.",
    "How does the {service} {verb} a {noun} when the {noun} {fault}?",
    "A {noun} is kept until the {service} has {verb}ed it; then the {noun} may {verb}.",
)
WORDS = {
    "level": ("INFO", "WARN", "ERROR", "DEBUG"),
    "service": ("gateway", "worker", "keeper", "ledger", "scheduler", "encoder", "cache"),
    "noun": ("record", "vector", "patch", "queue", "message", "token", "slice", "batch", "chunk"),
    "verb": ("check", "load", "restart", "fetch", "answer", "pack", "count", "repeat"),
    "fault": ("timed out", "was refused", "is lost", "was reset by peer", "ran out of memory"),
}


def documents(*, count: int = 1200, seed: int = 7) -> Iterator[Document]:
    """Made-up documents of 1 to 4 lines; every sixth is held out."""
    rng = random.Random(seed)
    for number in range(count):
        lines = [
            line(rng, template=rng.randrange(len(_TEMPLATES)))
            for _ in range(rng.choice((1, 1, 1, 2, 3, 4)))
        ]
        split = Split.VALIDATION if number % 6 == 5 else Split.TRAIN
        yield Document("made-up", "made-up", f"made-up:{number}", "\n".join(lines), split)


def build(folder: Path, *, work: Path, recipe: Recipe | None = None) -> None:
    """Train and publish the artifact into ``folder``; ``work`` holds the run and may be deleted."""
    recipe = recipe or config.load("tiny")
    pool = list(documents())
    sentence_encoder, wordpiece = untrained(
        [d.text for d in pool if d.split is Split.TRAIN], dim=recipe.model.vector_dim
    )
    dataset.prepare(
        recipe, pool, folder=work / "data", sentence_encoder=(sentence_encoder, wordpiece)
    )
    run = Run(recipe, data=work / "data", folder=work / "run")
    run.train()
    trained = Trained(
        recipe=recipe,
        decoder=run.decoder.eval(),
        decoder_tokenizer=Tokenizer.from_file(str(work / "data" / "tokenizer.json")),
        encoder=sentence_encoder,
        encoder_tokenizer=wordpiece,
        int8_scale=run.int8_scale,
        command="python -m tests.support.tiny_artifact",
        run=describe(work / "run"),
        synthetic=True,
    )
    publish.write_text_tables(pool, folder=work / "tables", recipe=recipe)
    publish.publish(trained, pool, tables=work / "tables", folder=folder, name="tiny")


def line(rng: random.Random, *, template: int) -> str:
    """Make up a line by one of the templates, numbered from 0."""
    text = _TEMPLATES[template]
    while "{" in text:
        start, end = text.index("{"), text.index("}")
        text = text[:start] + _value(text[start + 1 : end], rng) + text[end + 1 :]
    return text


def _value(name: str, rng: random.Random) -> str:
    if name == "time":
        clock = f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
        return f"2026-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}T{clock}Z"
    if name == "hex":
        return f"{rng.getrandbits(32):08x}"
    if name == "number":
        return str(rng.randrange(10_000))
    if name == "small":
        return str(rng.randrange(1, 10))
    return rng.choice(WORDS[name])


def main() -> None:
    """Build the artifact in the folder that the command line names."""
    with tempfile.TemporaryDirectory() as work:
        build(Path(sys.argv[1]), work=Path(work))


if __name__ == "__main__":
    main()
