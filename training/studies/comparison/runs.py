"""Train the arms one after the other and compare their figures.

The budget of an arm is processor time, so that a machine shared with others gives every arm the
same. It is not quite the same: an arm that shares caches with others does less in a second, so the
number of steps stands beside every figure, and the start runs again with another seed.

What is measured is cross-entropy on texts that none was trained on: the bytes that a coder driven
by the whole distribution would take, without its rounding up. The rank stream takes 1 to 10 % more.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from studies.comparison import texts
from studies.comparison.arms import Arm
from verso_training import device
from verso_training.config import Recipe
from verso_training.data import dataset
from verso_training.data.sources import Split
from verso_training.decoder.train import Run

_FOUND = "found.json"


@dataclass(frozen=True)
class Found:
    """What one arm came to.

    parameters: of the decoder, embeddings and vector memory included
    logs, short: mean bytes a record of cross-entropy with the vector, as it was trained to meet it
    logs_alone, short_alone: the same without a vector
    accuracy: share of right first guesses with the vector, 0 to 1
    """

    arm: str
    minutes: float
    steps: int
    tokens: int
    parameters: int
    logs: float
    logs_alone: float
    short: float
    short_alone: float
    accuracy: float


def run(arms: Iterable[Arm], start: Recipe, *, prepared: Path, work: Path) -> list[Found]:
    """Train what is not trained yet; the figures of all arms in their order."""
    found = []
    for arm in arms:
        folder = work / arm.name.replace(" ", "-").replace(",", "")
        path = folder / _FOUND
        if not path.exists():
            one = _train(arm.recipe(start), prepared=prepared, folder=folder)
            path.write_text(json.dumps(asdict(one)) + "\n", encoding="utf-8")
        found.append(Found(**json.loads(path.read_text(encoding="utf-8"))))
    return found


def _train(recipe: Recipe, *, prepared: Path, folder: Path) -> Found:
    data = prepared / str(recipe.model.vocab)
    resumed = (folder / "state.pt").exists()
    trained = Run(recipe, data=data, folder=folder, resume=resumed, clock=time.process_time)
    trained.train()
    last = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1]
    row = json.loads(last)
    counts = Counter(chunk.source for chunk in dataset.load(data, Split.VALIDATION).chunks)
    logs = [source for source in counts if source.startswith("loghub")]
    short = [source for source in counts if source not in logs]
    return Found(
        arm=recipe.name,
        minutes=row["elapsed_s"] / 60,
        steps=row["step"],
        tokens=row["tokens"],
        parameters=sum(weight.numel() for weight in trained.decoder.parameters()),
        logs=_bytes_a_record(row["vector"], counts, logs),
        logs_alone=_bytes_a_record(row["none"], counts, logs),
        short=_bytes_a_record(row["vector"], counts, short),
        short_alone=_bytes_a_record(row["none"], counts, short),
        accuracy=row["vector"]["all"]["token_accuracy"],
    )


def _bytes_a_record(
    measured: dict[str, dict[str, Any]], counts: Counter[str], sources: Sequence[str]
) -> float:
    """The mean over sources of the mean over their records."""
    means: list[float] = [
        measured[source]["bits_per_byte"] * measured[source]["size_bytes"] / 8 / counts[source]
        for source in sources
    ]
    return sum(means) / len(means)


_COLUMNS = (
    "arm", "parameters", "steps", "log lines", "no vector", "short texts", "no vector", "right",
)  # fmt: skip


def table(found: Iterable[Found]) -> str:
    """The figures as a Markdown table: bytes a record, and the share of right first guesses."""
    lines = [
        "| " + " | ".join(_COLUMNS) + " |",
        "|---|" + "---:|" * (len(_COLUMNS) - 1),
    ]
    for one in found:
        cells = [one.arm, f"{one.parameters / 1e6:.1f} M", f"{one.steps:,}"]
        cells += [f"{x:.1f}" for x in (one.logs, one.logs_alone, one.short, one.short_alone)]
        lines.append("| " + " | ".join([*cells, f"{one.accuracy:.1%}"]) + " |")
    return "\n".join(lines)


def json_line(found: Iterable[Found], start: Recipe) -> str:
    """The figures and the recipe they start from, as one line."""
    return json.dumps({"start": start.to_dict(), "arms": [asdict(one) for one in found]})


def timed(start: Recipe, minutes: float | None) -> Recipe:
    """The recipe with another budget of processor minutes an arm."""
    if minutes is None:
        return start
    return replace(start, train=replace(start.train, minutes=minutes))


def placed(start: Recipe) -> Recipe:
    """Return the recipe on the fastest device."""
    return replace(start, train=replace(start.train, device=device.fastest().type))


def prepared(
    start: Recipe, data: Path, *, folder: Path, load_encoder: Callable[[], texts.Encoder]
) -> Path:
    """The folder of the prepared data sets, made if they are not there yet."""
    done = folder / "done"
    if not done.exists():
        texts.prepare(start, data, folder=folder, sentence_encoder=load_encoder())
        done.touch()
    return folder
