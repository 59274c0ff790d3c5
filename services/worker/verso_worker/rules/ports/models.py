"""What the pipeline needs of models and heads, and of what is fitted to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from verso_core.errors import HeadUnknown
from verso_core.heads import Head, Judged, Task
from verso_core.jobs import AnySlice, Collection
from verso_core.jobs.fitting import Fitting, Generation, GenerationStage
from verso_core.registry import Channel
from verso_worker.records.confidence import Statistics
from verso_worker.records.outputs import Classified, Document, Found, Predicted, Trial, Wanted
from verso_worker.records.recorder import Recorder
from verso_worker.records.space import Vector
from verso_worker.rules.ports.outcome import OnProgress

T = TypeVar("T")


class Cutter(Protocol):
    """Cuts a text into chunks."""

    def cut(self, text: bytes) -> list[bytes]:
        """Return the chunks, in order; joined they are the text."""

    def first(self, text: bytes) -> bytes:
        """Return the first chunk of a text."""
        ...

    def tokens(self, text: bytes) -> int:
        """Return how many tokens a text has for the encoder, without the special ones."""
        ...


class HeadEngine(Protocol):
    """Runs heads by name and version; HeadUnknown where one is not loaded."""

    def head_load(self, folder: Path) -> None:
        """Load and check a head; raises HeadInvalid."""

    def classify_vectors(self, name: str, version: str, *, vectors: Vector) -> Classified:
        """Classify vectors. Shape: (n, D)."""

    def classify_documents(
        self, name: str, version: str, *, documents: Sequence[Document]
    ) -> Classified:
        """Classify documents by the vectors of their chunks, and by their terms."""

    def classify_texts(self, name: str, version: str, *, texts: Sequence[bytes]) -> Classified:
        """Classify texts by their tokens."""

    def score_vectors(self, name: str, version: str, *, pairs: Vector) -> Vector:
        """Score pairs of vectors. Shape: (n, 2, D) to (n,)."""

    def score_texts(
        self, name: str, version: str, *, first: Sequence[bytes], second: Sequence[bytes]
    ) -> Vector:
        """Score pairs of texts. Shape: (n,)."""

    def answer(
        self, name: str, version: str, *, question: bytes, contexts: Sequence[str], count: int
    ) -> list[Found]:
        """Read the best spans of each context."""

    def probe(self, texts: Sequence[bytes], vectors: Vector) -> list[tuple[int, int]]:
        """Count right first guesses of the decoder, and tokens, of each text."""

    def predict(self, texts: Sequence[bytes], vectors: Vector) -> list[list[Predicted] | None]:
        """Return each text's tokens with the decoder's first guesses; None where unreadable."""


@dataclass(frozen=True, slots=True)
class Model:
    """One loaded artifact: how it cuts, codes and rounds.

    ``codec`` is the artifact's codec id, ``space`` its space id; ``heads`` runs heads of its space.
    ``max_tokens`` are the encoder's, special tokens included; ``pooling`` makes one vector of its.
    """

    codec: str
    space: str
    dim: int
    max_tokens: int
    pooling: str
    int8_scale: float
    cutter: Cutter
    recorder: Recorder
    heads: HeadEngine


@dataclass(frozen=True, slots=True)
class ServedHead:
    """The version of a head that a job uses.

    model: the artifact whose encoder it reads.
    statistics: of its signals; None for a head without them.
    """

    head: Head
    folder: Path
    channel: Channel
    model: Model
    statistics: Statistics | None

    def run(self, call: Callable[[HeadEngine, str, str], T]) -> T:
        """Call the engine with the head's name and version.

        A restarted engine has no heads, so a head that it does not know is loaded first.
        """
        engine = self.model.heads
        name, version = self.head.name, self.head.version
        try:
            return call(engine, name, version)
        except HeadUnknown:
            engine.head_load(self.folder)
            return call(engine, name, version)

    @property
    def about(self) -> dict[str, Any]:
        """Return the fields that name the head in a result."""
        return {"head": self.head.name, "version": self.head.version, "channel": self.channel.value}


@dataclass(frozen=True, slots=True)
class StableRun(Generic[T]):
    """How to run a slice with stable versions, to compare a canary with."""

    work: AnySlice
    run: Callable[[], T]


class Heads(Protocol):
    """The heads this platform serves."""

    def get(self, name: str, *, task: Task, job: str | None) -> ServedHead:
        """Return the version of a head that a job uses; for None the stable one.

        A job that is a :class:`Channel` chooses itself.

        Raises:
            HeadUnknown: there is no head of this name, or it does another task.
            HeadInvalid: its folder is invalid, and no earlier version was served.
        """

    def run_job(
        self,
        names: Sequence[str],
        call: Callable[[str | None], T],
        *,
        job: str,
        beside: StableRun[T] | None = None,
    ) -> T:
        """Run a job with the heads that its id chooses; if a canary fails it, without canaries.

        Args:
            names: the heads that the slice names.
            call: runs the job with the channels of the job id it is given; given None, with stable
                versions only.
            job: the job's id.
            beside: what a canary is compared with; None if the job is not to be run twice.
        """

    def canary(self, name: str, job: str) -> str | None:
        """Return the canary's version if the job is of its share, else None."""

    def judged(self, name: str, scores: Sequence[tuple[float, float]]) -> None:
        """Note the Brier scores of a head's canary and its stable version on labelled texts."""

    def states(self) -> list[dict[str, Any]]:
        """Describe all heads, by name."""

    def report(self, name: str, channel: Channel) -> tuple[Head, bytes]:
        """Return the version that a channel serves, and its card: Markdown, UTF-8.

        Raises:
            HeadUnknown: the channel serves no head of this name.
            HeadInvalid: its folder is invalid.
        """


class Models(Protocol):
    """The artifacts this worker can serve; older ones stay loadable while records need them."""

    def current(self) -> Model:
        """Return the artifact that new collections use."""

    def writing(self, collection: Collection) -> Model:
        """Return the artifact that writes into a collection: the newest one of its space."""

    def named(self, name: str | None) -> Model:
        """Return the artifact that serves under a name; None is the current one.

        Raises:
            ModelUnknown: none does.
        """

    def get(self, codec: str) -> Model:
        """Return the artifact with this codec id, or with the fitted tables of this generation.

        Raises:
            EngineUnavailable: there is none.
            ArtifactInvalid: the fitted tables are damaged, or decode to other texts here.
        """

    def codec_bytes(self, codec: str) -> int:
        """Return the size of the files that a codec decodes with; 0 where they are not kept."""
        ...

    def check_tables(self, codec: str, packed: bytes) -> None:
        """Read fitted tables as a load does, and decode their golden samples.

        Raises:
            ArtifactInvalid: one decodes to another text in this process.
        """


class Fitter(Protocol):
    """Fits tables, elsewhere."""

    def fit(self, codec: str, wanted: Wanted, on_progress: OnProgress) -> tuple[Trial, float]:
        """Fit tables on top of the artifact with a codec id.

        Returns:
            What came out, and the seconds of the processor that it took.

        Raises:
            EngineUnavailable: the fit ended early, or took too long.
        """
        ...


class Tables(Protocol):
    """The ledger's fitted tables of collections, which are named by their own names."""

    def tables(self, generation: str) -> bytes | None:
        """Return tables as they are stored; None where the generation is deleted."""

    def correct(self, generation: str, tables: bytes) -> None:
        """Replace damaged tables by what they were, unless the generation is deleted."""

    def add(
        self, name: str, generation: Generation, tables: bytes, *, number: int, chunks: int
    ) -> bool:
        """Store new tables as the collection's canary; False if fit ``number`` has ended."""
        ...

    def tried(self, name: str, *, number: int, chunks: int) -> None:
        """Record that fit ``number`` made no generation."""

    def verified(self, name: str, generation: str, records: int) -> int:
        """Count records of a generation that read back; return how many have so far."""
        ...

    def stage(self, name: str, generation: str, stage: GenerationStage) -> Fitting:
        """Put a generation in another stage."""
        ...


class FeedbackRows(Protocol):
    """Labels that people have checked, by version of a head."""

    def add(self, head: str, version: str, rows: Mapping[bytes, Judged]) -> None:
        """Store rows by the hash of what was labelled; of too many the oldest are removed."""

    def rows(self, head: str, version: str) -> list[Judged]:
        """Return the rows of a version, oldest first."""
        ...
