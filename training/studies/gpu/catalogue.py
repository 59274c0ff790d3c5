"""The entries by name: which commands, one after the other, and which files hold their figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TRAINING = "verso_training"
STUDIES = "studies"


@dataclass(frozen=True)
class Step:
    """One command of an entry.

    Attributes:
        name: Of its files in the working folder. What two entries call the same is done once.
        module: Of ``python -m``.
        arguments: Words. ``{data}``, ``{artifact}``, ``{work}`` and ``{recipe}`` are the caller's;
            a word with ``*`` is the one path that it fits when the step starts.
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
        return [word.format(**named) for word in step.arguments.split()]


_DATA = Step("gpu-data", TRAINING, "prepare --recipe {recipe} --data {data} --out {work}/gpu-data")


def _arm(conditioning: str) -> Step:
    return Step(
        f"conditioning-{conditioning}",
        TRAINING,
        f"train --recipe {{recipe}} --conditioning {conditioning} --minutes 10 --resume "
        f"--prepared {{work}}/gpu-data --run {{work}}/conditioning-{conditioning}",
        figures=(f"conditioning-{conditioning}/metrics.jsonl",),
        needs=(_DATA.name,),
    )


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
        "train --recipe {recipe} --resume --prepared {work}/gpu-data --run {work}/decoder",
        figures=("decoder/metrics.jsonl",),
        needs=(_DATA.name,),
    ),
    Step(
        "decoder-tables",
        TRAINING,
        "tables --recipe {recipe} --data {data} --out {work}/decoder-tables",
    ),
    Step(
        "decoder-publish",
        TRAINING,
        "publish --prepared {work}/gpu-data --run {work}/decoder --tables {work}/decoder-tables "
        "--data {data} --out {work}/models/gpu",
        needs=("decoder-train", "decoder-tables"),
    ),
    Step(
        "decoder-evaluate",
        TRAINING,
        "evaluate --run {work}/decoder --data {data} --artifact {work}/models/gpu",
        needs=("decoder-publish",),
    ),
)

_HEADS = (
    Step(
        "heads-reader",
        STUDIES,
        "head --recipe qa-long --data {data} --artifact {artifact} --work {work}/heads-reader "
        "--out {work}/heads",
        figures=("heads/qa-long/*/head.json",),
    ),
    Step(
        "heads-student",
        STUDIES,
        "distillation --second-minutes 200 --minutes 20 --data {data} --artifact {artifact} "
        "--head {work}/heads/qa-long/* --work {work}/heads-student",
        needs=("heads-reader",),
    ),
    Step(
        "heads-tasks",
        STUDIES,
        "tasks --full --data {data} --artifact {artifact} --work {work}/studies",
        figures=("studies/full/tasks/*.json",),
    ),
)

_JOINT = Step(
    "joint",
    STUDIES,
    "joint --data {data} --artifact {artifact} --work {work}/studies",
    figures=("studies/papers/joint/*/*.json",),
)

ENTRIES: Mapping[str, Entry] = {
    "decoder": Entry(60.0, _DECODER),
    "conditioning": Entry(40.0, (_DATA, _arm("memory"), _arm("cross"))),
    "heads": Entry(180.0, _HEADS),
    "joint": Entry(120.0, (_JOINT,)),
    "papers": Entry(
        180.0,
        tuple(
            _rows(study)
            for study in (
                "classification", "pair-strategies", "round-robin", "students", "readers",
                "recurrent",
            )
        ),
    ),
}  # fmt: skip
