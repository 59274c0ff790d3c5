"""Do more questions make the shipped reader better? Trainings from its weights, of equal budget.

1. Every arm starts from the weights that ship and is trained for the same processor time, at the
   same rate, on SQuAD's training articles; an arm adds the questions of one more kind.
2. All are measured on SQuAD's dev articles, which no arm was trained on. What is fitted of a reader
   after its training, the weight of the sentence's cosine and the threshold with the best F1, is
   fitted on the other dev articles, each in turn. Intervals are over paragraphs.
3. Means of readers are measured too: of their logits, which is an ensemble and the most that a
   student could learn of it, and of their weights, which is one reader: they started from the same
   weights (Wortsman et al. 2022, "Model soups").

Matrix products are computed in bfloat16, and attention without the fused kernel, whose backward
pass takes most of the time on a CPU: a step takes half as long. Weights stay float32.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from studies.answers import material
from studies.answers.intervals import Compared, Marked, compared
from studies.answers.material import Sources
from studies.papers.kept import table
from studies.quality import squad
from studies.quality.squad import Part
from verso_core import manifest
from verso_training.artifact.graphs import EncoderGraph
from verso_training.heads import backbone, fitting, graph, reader
from verso_training.heads.backbone import Backbone
from verso_training.heads.questions import Question, Window, windows
from verso_training.heads.reader import Answer, Encode, Logits
from verso_training.heads.recipe import AnswerConfig
from verso_training.heads.vectors import OnProgress

Floats = NDArray[np.float32]
Losses = Callable[[Sequence[Window]], Mapping[str, Tensor]]
"""Of a batch, by name."""
RATE = 4e-4
"""Half of the recipe's: the weights are trained already."""
ARMS: Mapping[str, tuple[str, ...]] = {
    "squad": (),
    **{kind: (kind,) for kind in material.KINDS},
}
"""The kinds of questions that each arm adds."""


@dataclass(frozen=True)
class Loaded:
    """The weights that ship, in a module, with what they read."""

    base: Backbone
    module: reader.Reader
    config: AnswerConfig

    @classmethod
    def of(cls, artifact: Path, head: Path) -> Loaded:
        """Read a head's folder into a new module."""
        base = backbone.load(artifact)
        start = graph.load(head, space=manifest.load(artifact).manifest.space.id)
        most, stride = start.head.max_tokens, start.head.stride
        assert most is not None
        assert stride is not None
        config = replace(graph.shaped(AnswerConfig(), start), max_tokens=most, stride=stride)
        module = reader.Reader(base, config)
        start.restore(module.only(config.layers))
        return cls(base, module.eval(), config)

    @classmethod
    def new(cls, artifact: Path, config: AnswerConfig, *, seed: int) -> Loaded:
        """Return a reader that nothing was trained of yet."""
        base = backbone.load(artifact)
        torch.manual_seed(seed)
        return cls(base, reader.Reader(base, config).eval(), config)

    def logits(self, batch: Sequence[Window]) -> tuple[Floats, Floats]:
        """Return what the module says of windows, computed in bfloat16."""
        padded = reader.collate(batch)
        only = self.module.only(self.config.layers)
        with torch.inference_mode(), _bfloat16():
            start, end = only(padded.ids, padded.mask, padded.types)
        return start.float().numpy(), end.float().numpy()

    def answers(self, asked: Sequence[Question], logits: Logits | None = None) -> list[Answer]:
        """Return the best answer of each question."""
        return reader.answers(
            asked, self.base.tokenizer, logits=logits or self.logits, config=self.config
        )

    def weighted(self, weights: Mapping[str, Tensor]) -> Logits:
        """Return the logits by other weights; the module has them from then on."""
        backbone.restore(self.module, weights)
        return self.logits


def further(config: AnswerConfig, *, minutes: float) -> fitting.Budget:
    """Return the budget of a training from weights that are trained already."""
    return fitting.Budget(minutes, 100.0, RATE, config.tokens_per_step, checkpoint_minutes=2.0)


def train(
    start: Loaded,
    asked: Sequence[Question],
    budget: fitting.Budget,
    *,
    folder: Path,
    warm: Sequence[Question] = (),
    losses: Losses | None = None,
    on_progress: OnProgress = lambda _: None,
) -> dict[str, Tensor]:
    """Train a reader and return its weights; a run in the same folder goes on.

    Args:
        start: The reader; its module is changed.
        asked: Questions that it is trained on.
        budget: How long.
        folder: For checkpoints.
        warm: Questions of the first phase.
        losses: Of a batch; None: those of the right spans.
        on_progress: Told every ten steps.
    """
    done = folder / "finished"
    if not done.exists():
        config = start.config
        shown, before = (
            list(
                windows(
                    part, start.base.tokenizer,
                    max_tokens=config.max_tokens, stride=config.stride, all_windows=False,
                )
            )
            for part in (asked, warm)
        )  # fmt: skip
        run = fitting.AdapterRun(
            start.module, budget, main=shown, warm=before,
            losses=narrow(losses or start.module.losses), folder=folder,
        )  # fmt: skip
        run.train(on_progress=on_progress, should_stop=lambda: False)
        done.touch()
    return load_file(folder / "adapter.safetensors")


def narrow(losses: Losses) -> Losses:
    """Return losses whose matrix products are computed in bfloat16."""

    def computed(batch: Sequence[Window]) -> Mapping[str, Tensor]:
        with _bfloat16():
            found = losses(batch)
        return {name: loss.float() for name, loss in found.items()}

    return computed


@contextmanager
def _bfloat16() -> Iterator[None]:
    with sdpa_kernel(SDPBackend.MATH), torch.autocast("cpu", dtype=torch.bfloat16):
        yield


def mean_weights(found: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of the weights of readers that started from the same ones."""
    return {name: torch.stack([one[name] for one in found]).mean(0) for name in found[0]}


def mean_logits(found: Sequence[Logits]) -> Logits:
    """Return the mean of what readers say: an ensemble."""

    def run(batch: Sequence[Window]) -> tuple[Floats, Floats]:
        said = [one(batch) for one in found]
        start, end = (np.mean([one[side] for one in said], axis=0) for side in (0, 1))
        return start, end

    return run


@dataclass(frozen=True)
class Read:
    """A reader's best answers to the same questions, with the cosine of each one's sentence."""

    answers: Sequence[Answer]
    cosines: Floats

    @classmethod
    def of(cls, asked: Sequence[Question], answers: Sequence[Answer], encode: Encode) -> Read:
        """Add the cosines."""
        return cls(answers, reader.sentence_cosines(asked, answers, encode))

    def write(self, path: Path) -> None:
        """Keep it for a later run."""
        rows = [asdict(one) for one in self.answers]
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps({"answers": rows, "cosines": self.cosines.tolist()}))
        draft.replace(path)

    @classmethod
    def load(cls, path: Path) -> Read:
        """Read what an earlier run has kept."""
        found = json.loads(path.read_text(encoding="utf-8"))
        answers = [Answer(**{**row, "place": tuple(row["place"])}) for row in found["answers"]]
        return cls(answers, np.array(found["cosines"], np.float32))

    @classmethod
    def once(cls, path: Path, read: Callable[[], Read]) -> Read:
        """Return what an earlier run has kept, or read and keep it."""
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            read().write(path)
        return cls.load(path)


def held_out(asked: Sequence[Question], read: Read) -> tuple[Marked, NDArray[np.bool_]]:
    """Return answers, scored as they are served, and which of them are given.

    The weight of the cosine and the threshold are fitted on the other articles.
    """
    groups = np.array([row.group for row in asked])
    found: list[Answer] = list(read.answers)
    given = np.zeros(len(asked), np.bool_)
    for article in np.unique(groups):
        own, rest = (
            np.flatnonzero(which).tolist() for which in (groups == article, groups != article)
        )
        rows, others = ([read.answers[at] for at in part] for part in (own, rest))
        known = [asked[at] for at in rest]
        relevance = reader.fit_relevance(known, others, read.cosines[rest])
        threshold = reader.best_threshold(
            known, reader.corrected(others, read.cosines[rest], relevance)
        )
        for at, answer in zip(
            own, reader.corrected(rows, read.cosines[own], relevance), strict=True
        ):
            found[at] = answer
            given[at] = answer.margin > threshold
    return Marked.of(asked, found), given


@dataclass(frozen=True)
class Study:
    """Where arms are trained and measured.

    Attributes:
        data: Folder of the public data sets.
        artifact: Whose encoder is read.
        head: Folder of the reader whose weights all start from.
        work: Keeps questions, weights and answers; a later run goes on from there.
        minutes: Processor time of each arm.
    """

    data: Path
    artifact: Path
    head: Path
    work: Path
    minutes: float

    def run(self, arms: Sequence[str], *, means: bool = True) -> dict[str, Compared]:
        """Train arms and measure them beside the weights that ship.

        Args:
            arms: Names of :data:`ARMS`.
            means: Whether the means of all these readers are measured as well.
        """
        shipped = Loaded.of(self.artifact, self.head)
        encode = EncoderGraph(self.artifact, threads=1).encode
        sources = Sources(self.data, shipped.answers, encode)
        dev = squad.read(self.data, Part.DEV)
        first = backbone.state(shipped.module)
        weights = {SHIPPED: {name: one.clone() for name, one in first.items()}}
        for arm in arms:
            asked = material.base(sources)
            for kind in ARMS[arm]:
                asked += material.held(kind, sources, self.work / "questions")
            torch.manual_seed(0)
            start = Loaded.of(self.artifact, self.head)
            budget = further(start.config, minutes=self.minutes)
            weights[arm] = train(start, asked, budget, folder=self.work / "runs" / arm)

        def read(name: str, logits: Callable[[], Logits]) -> Read:
            path = self.work / "read" / f"{name}.json"
            return Read.once(path, lambda: Read.of(dev, shipped.answers(dev, logits()), encode))

        found = {name: read(name, partial(shipped.weighted, own)) for name, own in weights.items()}
        if means:
            every = list(weights.values())
            found["mean of weights"] = read(
                mean_file("weights", weights), lambda: shipped.weighted(mean_weights(every))
            )
            found[MEAN] = read(mean_file("logits", weights), lambda: self._ensemble(every))
        decided = {name: held_out(dev, one) for name, one in found.items()}
        figures = dict(zip(found, compared(list(decided.values())), strict=True))
        for arm in arms:
            if ARMS[arm] and WITHOUT in arms:
                pair = [decided[WITHOUT], decided[arm]]
                figures[f"{arm} over {WITHOUT}"] = compared(pair)[1]
        return figures

    def _ensemble(self, found: Sequence[Mapping[str, Tensor]]) -> Logits:
        return mean_logits(
            [Loaded.of(self.artifact, self.head).weighted(weights) for weights in found]
        )


def mean_file(what: str, names: Iterable[str]) -> str:
    """Return the name of the file that keeps what a mean of these readers says."""
    return "-".join([what, *names]).replace(" ", "-")


SHIPPED, MEAN = "shipped", "mean of logits"
WITHOUT = "squad"
"""The arm without more questions."""
_COLUMNS = (
    "F1", "F1, with an answer", "F1, with an answer, all given", "AUROC", "given",
    "right among it", "right among 28%",
)  # fmt: skip


def page(found: Mapping[str, Compared]) -> str:
    """Return the table: figures with their gain over the weights that ship."""
    rows = [
        [name, *(_cell(one, column, gain=name != SHIPPED) for column in _COLUMNS)]
        for name, one in found.items()
    ]
    return table(["reader", *_COLUMNS], rows)


def _cell(found: Compared, column: str, *, gain: bool) -> str:
    value, by = found.of[column], found.gain[column]
    if not gain:
        return f"{value.value:.1f} [{value.low:.1f}, {value.high:.1f}]"
    return f"{value.value:.1f}, {by.value:+.1f} [{by.low:+.1f}, {by.high:+.1f}]"
