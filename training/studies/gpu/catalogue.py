"""The entries by name: which commands, one after the other, and which files hold their figures."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TRAINING = "verso_training"
STUDIES = "studies"
SEGMENTS = "studies.benches.codecs.bench_segments"


@dataclass(frozen=True)
class Step:
    """One command of an entry.

    Attributes:
        name: Of its files in the working folder. What two entries call the same is done once.
        module: Of ``python -m``.
        arguments: Words, in quotes where one has spaces. ``{data}``, ``{artifact}``, ``{work}`` and
            ``{recipe}`` are the caller's; a word with ``*`` is the one path that it fits when the
            step starts.
        figures: Patterns of files below the working folder: JSON, or JSON lines of which the last
            one counts.
        needs: Steps that must have ended before.
    """

    name: str
    module: str
    arguments: str
    figures: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """Steps, and after how many minutes the one that runs is ended."""

    minutes: float
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Places:
    """What the words of a step stand for: folders, and the recipe of the larger decoder."""

    data: Path
    artifact: Path
    work: Path
    recipe: str = "gpu"

    def words(self, step: Step) -> list[str]:
        """Return a step's arguments, patterns of paths as they are."""
        named = {
            "data": self.data,
            "artifact": self.artifact,
            "work": self.work,
            "recipe": self.recipe,
        }
        return [word.format(**named) for word in shlex.split(step.arguments)]


_DATA = Step("gpu-data", TRAINING, "prepare --recipe {recipe} --data {data} --out {work}/gpu-data")


_TABLES = Step(
    "decoder-tables", TRAINING, "tables --recipe {recipe} --data {data} --out {work}/decoder-tables"
)


def _arm(conditioning: str) -> Step:
    return Step(
        f"conditioning-{conditioning}",
        TRAINING,
        f"train --recipe {{recipe}} --conditioning {conditioning} --minutes 10 --resume "
        f"--prepared {{work}}/gpu-data --run {{work}}/conditioning-{conditioning}",
        figures=(f"conditioning-{conditioning}/metrics.jsonl",),
        needs=(_DATA.name,),
    )


def _published(name: str, data: str, run: str) -> tuple[Step, ...]:
    """Return the steps that publish a decoder and measure chunks and single texts."""
    published = Step(
        f"{name}-publish",
        TRAINING,
        f"publish --prepared {{work}}/{data} --run {{work}}/{run} --tables {{work}}/decoder-tables "
        f"--data {{data}} --out {{work}}/models/{name}",
        needs=(run, _TABLES.name),
    )
    evaluated = Step(
        f"{name}-evaluate",
        TRAINING,
        f"evaluate --run {{work}}/{run} --data {{data}} --artifact {{work}}/models/{name}",
        needs=(published.name,),
    )
    chunks = Step(
        f"{name}-chunks",
        SEGMENTS,
        f"--artifact {{work}}/models/{name}",
        needs=(published.name,),
    )
    return published, evaluated, chunks


def _rows(study: str) -> Step:
    return Step(
        f"papers-{study}",
        STUDIES,
        f"papers --full --only {study} --data {{data}} --artifact {{artifact}} "
        "--work {work}/studies",
        figures=(f"studies/full/papers/{study}/*.json",),
    )


_DECODER = (
    _DATA,
    Step(
        "decoder-train",
        TRAINING,
        "train --recipe {recipe} --resume --prepared {work}/gpu-data --run {work}/decoder-train",
        figures=("decoder-train/metrics.jsonl",),
        needs=(_DATA.name,),
    ),
    _TABLES,
    *_published("larger", "gpu-data", "decoder-train"),
)

_SEGMENTS = (
    _DATA,
    _arm("memory"),
    Step(
        "segments-data",
        STUDIES,
        "segments --recipe {recipe} --data {data} --prepared {work}/gpu-data "
        "--out {work}/segments-data",
        needs=(_DATA.name,),
    ),
    Step(
        "segments-shared",
        TRAINING,
        "train --recipe {recipe} --minutes 10 --resume --prepared {work}/segments-data "
        "--run {work}/segments-shared",
        figures=("segments-shared/metrics.jsonl",),
        needs=("segments-data",),
    ),
    _TABLES,
    *_published("own", "gpu-data", "conditioning-memory"),
    *_published("shared", "segments-data", "segments-shared"),
)

_HEADS = (
    Step(
        "heads-reader",
        STUDIES,
        "head --recipe qa-long --data {data} --artifact {artifact} --work {work}/heads-reader "
        "--out {work}/heads-made",
        figures=("heads-made/qa-long/*/head.json",),
    ),
    Step(
        "heads-student",
        STUDIES,
        "distillation --second-minutes 200 --minutes 20 --data {data} --artifact {artifact} "
        "--head {work}/heads-made/qa-long/* --work {work}/heads-student",
        needs=("heads-reader",),
    ),
    Step(
        "heads-tasks",
        STUDIES,
        "tasks --full --data {data} --artifact {artifact} --work {work}/studies",
        figures=("studies/full/tasks/*.json",),
    ),
)

_JOINT = tuple(
    Step(
        f"joint-{weight}",
        STUDIES,
        f"joint --recipe joint-gpu --similarity {weight} --only 'all layers, new cross-attention' "
        "--data {data} --artifact {artifact} --work {work}/studies",
        figures=(f"studies/papers/joint-gpu/*-{weight}/*.json",),
    )
    for weight in (300, 1000, 3000)
)

ENTRIES: Mapping[str, Entry] = {
    "joint": Entry(60.0, _JOINT),
    "decoder": Entry(60.0, _DECODER),
    "conditioning": Entry(40.0, (_DATA, _arm("memory"), _arm("cross"))),
    "segments": Entry(100.0, _SEGMENTS),
    "heads": Entry(180.0, _HEADS),
    "papers": Entry(
        180.0,
        tuple(
            _rows(study)
            for study in (
                "classification", "pair-strategies", "converged", "round-robin", "students",
                "readers", "configurations", "recurrent",
            )
        ),
    ),
}  # fmt: skip
