"""The studies by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from studies.papers import (
    aggregation,
    classification,
    combined,
    formats,
    guesses,
    loaded,
    pooling,
    precision,
    recurrent,
    saving,
    sentiment,
    sizes,
    written,
)
from studies.papers.joint import study as joint
from studies.papers.kept import Parts
from studies.papers.multi_task import converged, pair_strategies, round_robin, spent
from studies.papers.question_answering import configurations, readers, students
from studies.quality.classification import Bench


@dataclass(frozen=True)
class Study:
    """A study and the tables of what it found."""

    run: Callable[[Bench], Parts]
    page: Callable[[Parts], str]


STUDIES = {
    precision.STUDY: Study(precision.run, precision.page),
    pooling.STUDY: Study(pooling.run, pooling.page),
    saving.STUDY: Study(saving.run, saving.page),
    classification.STUDY: Study(classification.run, classification.page),
    aggregation.STUDY: Study(aggregation.run, aggregation.page),
    sentiment.STUDY: Study(sentiment.run, sentiment.page),
    loaded.STUDY: Study(loaded.run, loaded.page),
    pair_strategies.STUDY: Study(pair_strategies.run, pair_strategies.page),
    guesses.STUDY: Study(guesses.run, guesses.page),
    readers.STUDY: Study(readers.run, readers.page),
    converged.STUDY: Study(converged.run, converged.page),
    round_robin.STUDY: Study(round_robin.run, round_robin.page),
    sizes.STUDY: Study(sizes.run, sizes.page),
    spent.STUDY: Study(spent.run, spent.page),
    written.STUDY: Study(written.run, written.page),
    students.STUDY: Study(students.run, students.page),
    configurations.STUDY: Study(configurations.run, configurations.page),
    recurrent.STUDY: Study(recurrent.run, recurrent.page),
    formats.STUDY: Study(formats.run, formats.page),
    combined.STUDY: Study(combined.run, combined.page),
    joint.STUDY: Study(joint.run, joint.page),
}


def run(bench: Bench, names: Iterable[str]) -> dict[str, Parts]:
    """Run studies one after the other; each goes on where it was stopped."""
    return {name: STUDIES[name].run(bench) for name in names}
