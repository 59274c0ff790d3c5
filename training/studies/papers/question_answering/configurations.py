"""The thesis' six configurations of a student with its teacher. (A New Teacher for DistilBERT,
tables 6.2 and 6.3.)

They differ in rate, questions a step and epochs. The students are those of ``students``: half of
the layers, all trained, with one linear layer and the four with GELU and skip side by side, and the
reader that ships as teacher. Each is trained on every eighth training question, in full on all. The
rates of ``students`` stand for the thesis' higher one, 5e-5, since its steps are a hundred times as
many; the lower one, 3e-5, is as much lower. A step has as many tokens as its questions have on the
mean.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from studies.papers.kept import Kept, Parts
from studies.papers.question_answering import students
from studies.papers.question_answering.students import Lesson, Remembered
from studies.quality.classification import Bench
from studies.tasks.distillation import WEIGHT
from studies.tasks.steps import Rates

STUDY = "configurations"
_EVERY = 8
_HIGHER = 5e-5


@dataclass(frozen=True)
class Configuration:
    """One row of table 6.2; the rate is the thesis'."""

    rate: float
    questions: int
    epochs: int

    def __str__(self) -> str:
        """Return the settings as the thesis writes them."""
        return f"{self.rate:.0e}, {self.questions}, {self.epochs}".replace("e-0", "e-")

    @property
    def rates(self) -> Rates:
        """Return the rates that stand for the thesis'."""
        share = self.rate / _HIGHER
        return Rates(share * students.RATES.encoder, share * students.RATES.head)


CONFIGURATIONS = (
    Configuration(3e-5, 12, 3),
    Configuration(5e-5, 12, 4),
    Configuration(3e-5, 24, 3),
    Configuration(5e-5, 32, 3),
    Configuration(5e-5, 32, 6),
    Configuration(5e-5, 32, 4),
)
"""In the order of the thesis, ``config1`` to ``config6``."""


def run(bench: Bench, among: Iterable[Configuration] = CONFIGURATIONS) -> Parts:
    """Train a student in each configuration and measure it."""
    kept = Kept(bench.work / "papers" / STUDY)
    shown = students.shown_every(bench, bench.length(_EVERY, full=1))
    usual = statistics.mean(len(window.ids) for window in shown)
    teacher = Remembered(students.shipped_teacher(bench))
    found = {}
    for one in among:
        tokens = round(usual * one.questions)
        lesson = Lesson(shown, teacher, WEIGHT, one.epochs, tokens, one.rates)
        found[str(one)] = kept.of(str(one), partial(lesson.taught, bench, title=str(one)))
    return found


page = students.page
