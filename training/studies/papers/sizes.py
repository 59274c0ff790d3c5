"""Bytes, milliseconds and memory of encoders of other sizes. (Decodable Sentence-BERT, section 6:
mini has 6 layers and 12 heads, base 9 and 12, large 12 and 24.)

None of the three depends on what the weights are, so these are random: an encoder that is trained
for days on GPUs would take as many. Each is published as an artifact by the product's own exporter,
weights in int8, with a decoder of the shipped one's size that reads vectors as wide; a process of
its own loads it as an engine does. Nothing is said of quality.

    python -m studies.papers.sizes ARTIFACT
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from tokenizers import Tokenizer

from studies.papers.kept import Figures, Kept, Parts, table
from studies.papers.loaded import median_ms, resident_mb
from studies.papers.written import recipe_of
from studies.quality.classification import Bench
from verso_core import manifest
from verso_training.artifact import publish, tuning
from verso_training.artifact.publish import Trained
from verso_training.data.sources import Document, Split
from verso_training.decoder.model import Decoder
from verso_training.encoder import SentenceEncoder
from verso_worker.engine.loading import load_service

STUDY = "sizes"
TOKENS = (32, 128)
_PROCESSES = 3
_WORD = "worker"
"""One token of the encoder."""


@dataclass(frozen=True)
class Size:
    """An encoder's layers, heads and width; the feed-forward layers are four times as wide."""

    layers: int
    heads: int
    width: int

    @property
    def name(self) -> str:
        """As it stands in the table."""
        return f"{self.layers} layers of {self.width}, {self.heads} heads"


SIZES = tuple(
    Size(layers, heads, width)
    for width in (384, 768)
    for layers, heads in ((6, 12), (9, 12), (12, 24))
)


def run(bench: Bench) -> Parts:
    """Publish and measure every size."""
    kept = Kept(bench.work / "papers" / STUDY)
    return {size.name: kept.of(size.name, partial(_measured, bench, size)) for size in SIZES}


def _measured(bench: Bench, size: Size) -> Figures:
    """Return the figures of several processes."""
    made = untrained(bench.artifact / "encoder_tokenizer.json", size)
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "artifact"
        published(bench, made, folder=folder)
        command = [sys.executable, "-m", "studies.papers.sizes", str(folder)]
        outputs = [
            subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            for _ in range(_PROCESSES)
        ]
        encoder_mb = (folder / "encoder.onnx").stat().st_size / 1e6
    return {
        "parameters": float(sum(weight.numel() for weight in made.parameters())),
        "encoder_mb": encoder_mb,
        **least_and_most([json.loads(told) for told in outputs]),
    }


def least_and_most(told: Sequence[Figures]) -> Figures:
    """Return the least and the most of each figure."""
    found: dict[str, float] = {}
    for key in told[0]:
        values = [one[key] for one in told]
        found |= {f"{key}/least": min(values), f"{key}/most": max(values)}
    return found


def untrained(tokenizer: Path, size: Size) -> SentenceEncoder:
    """Return an encoder of random weights for a tokenizer's words."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    about = BertConfig(
        vocab_size=Tokenizer.from_file(str(tokenizer)).get_vocab_size(),
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.width,
    )
    return SentenceEncoder(BertModel(about, add_pooling_layer=False)).eval()


def published(bench: Bench, made: SentenceEncoder, *, folder: Path) -> None:
    """Write an artifact of an encoder, all else as in the bench's but for the width it reads."""
    about = manifest.load(bench.artifact)
    known = recipe_of(bench.artifact)
    recipe = replace(known, model=replace(known.model, vector_dim=made.dim))
    publish.publish(
        Trained(
            recipe=recipe,
            decoder=Decoder(recipe.model).eval(),
            decoder_tokenizer=tuning.tokenizer(about),
            encoder=made,
            encoder_tokenizer=Tokenizer.from_file(str(bench.artifact / "encoder_tokenizer.json")),
            int8_scale=about.manifest.space.int8_scale,
            command="python -m studies papers --only sizes",
            run="Nothing was trained.",
            synthetic=True,
        ),
        _texts(),
        tables=bench.artifact,
        folder=folder,
        name=folder.name,
    )


def _texts() -> Iterator[Document]:
    """Yield texts, half of them for golden samples, 64 of which an artifact must have."""
    for number in range(200):
        text = f"{_WORD} {number} waits for {_WORD} {number + 1}"
        yield Document(STUDY, STUDY, f"{number}", text, Split.VALIDATION, atomic=True)


def measured(artifact: Path) -> Figures:
    """Load an artifact; return MB of files and in memory, and ms of texts of ``TOKENS``."""
    before = resident_mb()
    about = manifest.load(artifact)
    figures = {"file_mb": sum(map(len, about.data.values())) / 1e6}
    service = load_service(about, threads=1)
    figures["mb"] = resident_mb() - before
    for tokens in TOKENS:
        text = " ".join([_WORD] * (tokens - 2)).encode()  # beside the first and the last token
        found = service.encode([text]).tokens[0]
        if found != tokens:
            raise AssertionError(f"expected {tokens} tokens, got {found}")
        figures[f"{tokens}/ms"] = median_ms(partial(service.encode, [text]))
    service.close()
    return figures


def page(found: Parts) -> str:
    """Return the table."""
    columns = ["encoder", "parameters", "encoder.onnx, MB", "artifact, MB", "in memory, MB"]
    columns += [f"{tokens} tokens, ms" for tokens in TOKENS]
    rows = []
    for name, f in found.items():
        cells = [f"{f['parameters'] / 1e6:.1f} M", f"{f['encoder_mb']:.1f}"]
        cells += [f"{f['file_mb/least']:.1f}", _range(f, "mb", digits=0)]
        rows.append([name, *cells, *(_range(f, f"{tokens}/ms", digits=1) for tokens in TOKENS)])
    return table(columns, rows)


def _range(figures: Figures, key: str, *, digits: int) -> str:
    """Return the least and the most of the processes."""
    return " to ".join(f"{figures[f'{key}/{end}']:.{digits}f}" for end in ("least", "most"))


if __name__ == "__main__":
    print(json.dumps(measured(Path(sys.argv[1]))))  # noqa: T201 - its output
