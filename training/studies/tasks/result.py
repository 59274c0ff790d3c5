"""The result of a study, kept in a folder for later runs and for the page."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studies.tasks.steps import Spent
from verso_training.heads.shipping import machine

Arrays = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class StudyResult:
    """One study's figures.

    Attributes:
        figures: By name, most in percent.
        arrays: Predictions and their targets, for intervals and for what builds on them.
        spent: By training.
        machine: What it ran on.
        date: When it ended.
    """

    name: str
    figures: Mapping[str, float]
    arrays: Arrays
    spent: Mapping[str, Spent] = field(default_factory=dict)
    machine: str = field(default_factory=machine)
    date: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d}")

    @property
    def minutes(self) -> float:
        """Of one core, all trainings together."""
        return sum(part.cpu_s for part in self.spent.values()) / 60

    def save(self, folder: Path) -> None:
        """Write ``NAME.npz`` and then ``NAME.json``: the second says that both are whole."""
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / f"{self.name}.npz", **self.arrays)  # type: ignore[arg-type]
        values = {
            "figures": dict(self.figures),
            "spent": {name: dataclasses.asdict(part) for name, part in self.spent.items()},
            "machine": self.machine,
            "date": self.date,
        }
        (folder / f"{self.name}.json").write_text(json.dumps(values, indent=1), encoding="utf-8")


def load(folder: Path, name: str) -> StudyResult | None:
    """What an earlier run found; None where there was none."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    values = json.loads(path.read_text(encoding="utf-8"))
    with np.load(folder / f"{name}.npz") as arrays:
        return StudyResult(
            name,
            values["figures"],
            {key: arrays[key] for key in arrays.files},
            {key: Spent(**part) for key, part in values["spent"].items()},
            values["machine"],
            values["date"],
        )
