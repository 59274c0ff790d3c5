"""The model card: what an artifact was made from, on what machine, and how good it is."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import onnxruntime as ort
import torch

from verso_training import evaluate
from verso_training.config import Recipe
from verso_training.evaluate import Tally
from verso_training.model import Decoder

_DATA = """\
| family | source | licence |
|---|---|---|
| techdocs | documentation of open-source projects | permissive; the Celery pages CC BY-SA 4.0 |
| books | mlschmitt/classic-books-markdown | public domain in the USA |
| factbook | CIA World Factbook 1995 | public domain |
| logs_rcheck, logs_rinstall | reverse-dependency checks of tidyverse and r-lib packages | MIT |
| logs_defects4j | rjust/defects4j failing tests | MIT |
| logs_syzkaller | google/syzkaller crash reports | Apache-2.0 |
| logs_ci_logdx | eyuansu62/LogDx, "dev" part (Bowen Qin, 2026) | CC BY 4.0 |
| squad | SQuAD contexts and questions, training articles only | CC BY-SA 4.0 |"""

_SYNTHETIC = "Synthetic log lines and sentences written by `verso_training.tiny`."


@dataclass(frozen=True)
class Facts:
    """What a card tells."""

    name: str
    command: str
    recipe: Recipe
    decoder: Decoder
    report: Mapping[str, Tally]
    noise: tuple[float, float]
    """Greatest difference of a logit and of a confidence between writing and reading, nats."""
    run: str
    """How the run went, in a sentence or two."""
    synthetic: bool = False
    """Whether the texts were made up, as for the artifact of the tests."""


def render(facts: Facts) -> str:
    """The card as Markdown."""
    model = facts.recipe.model
    parameters = sum(p.numel() for p in facts.decoder.parameters())
    encoder = (
        "random weights"
        if facts.synthetic
        else "all-MiniLM-L6-v2 (Apache-2.0), not trained further"
    )
    return f"""# {facts.name}

Artifact of Verso: a frozen sentence encoder and a decoder that restores a text from its stored
vector and a small patch, byte for byte.

- Encoder: {encoder}; mean pooling, L2 norm,
  weights stored as {facts.recipe.publish.encoder_storage}.
- Decoder: {parameters / 1e6:.2f} M parameters, {model.layers} layers, width {model.width},
  {model.heads} query and {model.kv_heads} key/value heads of {model.head_dim},
  {model.slots} memory slots, vocabulary {model.vocab},
  records of at most {model.max_tokens} tokens,
  weights stored as {facts.recipe.publish.decoder_storage}.
- Written {datetime.now(UTC):%Y-%m-%d} with torch {torch.__version__}, ONNX Runtime
  {ort.__version__}, Python {platform.python_version()} on {platform.machine()} {platform.system()},
  {os.cpu_count()} CPU cores.
- Command: `{facts.command}`
- {facts.run}

## Figures

Held-out texts, real patch bytes without record headers, bits per byte of text. "top-1" is the
share of tokens that the decoder guesses first; "escapes" the share written literally because a
float decision was too close or the rank too high. "neural, no vector" is the same decoder with a
zero vector but the same rank tables. "all" is the sources that were also trained on (other
documents of them); sets that were not are listed for themselves.

{evaluate.table(facts.report)}

```json
{evaluate.json_line(facts.report)}
```

Float noise between the pass that writes a record and the steps that read it, on this machine: at
most {facts.noise[0]:.1e} nats in a logit and {facts.noise[1]:.1e} in the confidence. A token
whose decision lies within {facts.recipe.publish.epsilon} (logit) or
{facts.recipe.publish.confidence_epsilon} (confidence) is written literally, whatever the machine.

## Data

{_SYNTHETIC if facts.synthetic else _DATA}

Only training parts were trained on. Rank tables and n-gram mixing were fitted on held-out
documents that the figures do not use.

## Limits

The decoder writes English prose, technical documentation and developer logs well. Other languages
and dense random data (hashes, base64) cost up to the raw size. A text guessed from a vector alone,
without its patch, is a guess: it keeps the topic and invents the details.
"""
