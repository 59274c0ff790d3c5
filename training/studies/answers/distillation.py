"""Does a student of several readers answer better than the reader that ships?

1. A second reader is trained as the one that ships was, from the encoder on, but with another seed
   and with matrix products in bfloat16: as many steps take half of the minutes. Readers that
   ``studies answers`` has trained further, each on other questions, may take its place.
2. The student starts at the weights that ship. It learns from the right spans and from the mean of
   the logits of all readers, by the loss of ``studies.papers.question_answering.students``: on
   SQuAD's training questions and on those of other kinds, of which the readers have seen none but
   QAMR's. A second student learns from the right spans alone, for as long, a third from the
   readers alone.
3. All are measured beside the mean of the readers, which is what the student could learn at best,
   as in ``studies.answers.arms``. Beside each student stands the mean of its weights and of those
   that ship, which it started from (Wortsman et al. 2022, "Robust fine-tuning").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from studies.answers import arms, material
from studies.answers.arms import MEAN, SHIPPED, Loaded, Read
from studies.answers.intervals import Compared, compared
from studies.answers.material import Sources
from studies.answers.taught import WEIGHTS, Taught
from studies.papers.question_answering import students
from studies.papers.question_answering.students import Teacher
from studies.quality import shipped as made
from studies.quality import squad
from studies.quality.job import digest
from studies.quality.squad import Part
from studies.tasks.distillation import WEIGHT
from verso_core import heads
from verso_training import device
from verso_training.artifact.graphs import EncoderGraph
from verso_training.heads import backbone, fitting
from verso_training.heads import recipe as recipes
from verso_training.heads.questions import Question
from verso_training.heads.reader import Logits

SEED = 1
SECOND = "another seed"
BETWEEN = "mean of the weights, {}"
STUDENTS: Mapping[str, float] = {"student": WEIGHT, "labels alone": 0.0, "readers alone": 1.0}
"""The weight of what the readers say, beside that of the right spans."""


def mean_of(readers: Sequence[Teacher]) -> Teacher:
    """Return the mean of the logits of readers."""

    def said(ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        starts, ends = zip(*(one(ids, mask, types) for one in readers), strict=True)
        return torch.stack(starts).mean(0), torch.stack(ends).mean(0)

    return said


@dataclass(frozen=True)
class Study:
    """Where readers are trained and measured.

    Attributes:
        data: Folder of the public data sets.
        artifact: Whose encoder is read.
        head: Folder of the reader that ships.
        work: Keeps questions, weights and answers; a later run goes on from there.
        second_minutes: Processor time of the second reader.
        minutes: Of each student.
        trained: Folders of readers that were trained from the weights that ship, in place of the
            second reader.
    """

    data: Path
    artifact: Path
    head: Path
    work: Path
    second_minutes: float
    minutes: float
    trained: Sequence[Path] = ()

    def run(self, names: Iterable[str]) -> dict[str, Compared]:
        """Train the second reader and students, and measure them beside the weights that ship.

        Args:
            names: Of :data:`STUDENTS`.
        """
        shipped = Loaded.of(self.artifact, self.head)
        encode = EncoderGraph(self.artifact, threads=1).encode
        sources = Sources(self.data, shipped.answers, encode)
        dev = squad.read(self.data, Part.DEV)
        every = {SHIPPED: shipped, **self._others(sources)}
        readers: dict[str, Logits] = {name: one.logits for name, one in every.items()}
        readers[MEAN] = arms.mean_logits(list(readers.values()))
        first = {name: own.clone() for name, own in backbone.state(shipped.module).items()}
        for name in names:
            taught = self._student(name, list(every.values()), sources)
            readers[name] = taught.logits
            both = arms.mean_weights([first, backbone.state(taught.module)])
            readers[BETWEEN.format(name)] = self._between(
                name, both, self.work / "runs" / _file(name)
            )

        def read(name: str) -> Read:
            file = arms.mean_file("logits", every) if name == MEAN else _file(name)
            path = self.work / "read" / f"{file}.json"
            return Read.once(
                path, lambda: Read.of(dev, shipped.answers(dev, readers[name]), encode)
            )

        decided = [arms.held_out(dev, read(name)) for name in readers]
        return dict(zip(readers, compared(decided), strict=True))

    def _others(self, sources: Sources) -> dict[str, Loaded]:
        if not self.trained:
            return {SECOND: self._second(sources)}
        found = {folder.name: Loaded.of(self.artifact, self.head) for folder in self.trained}
        for folder, reader in zip(self.trained, found.values(), strict=True):
            reader.weighted(load_file(folder / "adapter.safetensors"))
        return found

    def _second(self, sources: Sources) -> Loaded:
        """Return a reader that is trained as the one that ships was, with another seed."""
        config = recipes.parse(heads.load(self.head).head.lineage.recipe).answer
        start = Loaded.new(self.artifact, replace(config, beside=()), seed=SEED)
        budget = fitting.Budget(
            self.second_minutes, config.epochs, config.rate, config.tokens_per_step,
            warm_share=made.WARM_SHARE, checkpoint_minutes=2.0, seed=SEED,
        )  # fmt: skip
        short = [*made.qamr(self.data, "dev"), *made.qamr(self.data, "test")]
        asked = material.base(sources)
        folder = self.work / "runs" / "second"
        start.weighted(arms.train(start, asked, budget, folder=folder, warm=short))
        return start

    def _student(self, name: str, readers: Sequence[Loaded], sources: Sources) -> Loaded:
        asked = material.base(sources)
        for kind in material.KINDS:
            asked += material.held(kind, sources, self.work / "questions")
        torch.manual_seed(0)
        start = Loaded.of(self.artifact, self.head)
        folder = self.work / "runs" / _file(name)
        for one in readers:
            one.module.to(device.fastest())  # where the student is trained
        teacher = mean_of([one.module.only(one.config.layers) for one in readers])
        start.weighted(
            arms.train(
                start,
                asked,
                arms.further(start.config, minutes=self.minutes),
                folder=folder,
                losses=students.losses(start.module, teacher, weight=STUDENTS[name]),
            )
        )
        self._about(name, asked).write(folder)
        for one in readers:
            one.module.to(device.PROCESSOR)
        return start

    def _between(self, name: str, weights: Mapping[str, Tensor], student: Path) -> Logits:
        """Keep the mean of a student's weights and of those it started at; return its logits."""
        folder = self.work / "runs" / _file(BETWEEN.format(name))
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / WEIGHTS).exists():
            save_file({key: one.contiguous() for key, one in weights.items()}, folder / WEIGHTS)
        made = Taught.load(student)
        learned = f"{made.learned}; its weights are the mean of the student's and of that version's"
        replace(made, learned=learned).write(folder)
        return Loaded.of(self.artifact, self.head).weighted(weights)

    def _about(self, name: str, asked: Sequence[Question]) -> Taught:
        """Return what a card says of a student."""
        other = (
            f"--readers {' '.join(folder.name for folder in self.trained)}"
            if self.trained
            else f"--second-minutes {self.second_minutes:g}"
        )
        weight = STUDENTS[name]
        learned = ["the right spans"] * (weight < 1)
        others = f"{len(self.trained)} trained further" if self.trained else "one of another seed"
        if weight:
            mean = f"the mean of what that reader and {others} say ({weight:.0%} of the loss)"
            learned.append(mean)
        return Taught(
            f"python -m studies distillation {other} --minutes {self.minutes:g} --only '{name}'",
            heads.load(self.head).head.version,
            _SETS,
            _LICENCE,
            digest(asked),
            " and ".join(learned),
        )


_SETS = (
    "qa_squad (training articles)", "qa_qamr", "qa_selqa (test part)", "prose (made-up questions)",
)  # fmt: skip
_LICENCE = (
    "CC BY-SA 4.0 (SQuAD), MIT (QAMR), Apache-2.0 (SelQA), public domain and permissive (prose)"
)


def _file(name: str) -> str:
    return name.replace(", ", "-").replace(" ", "-")
