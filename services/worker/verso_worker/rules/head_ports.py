"""What the pipeline needs of heads: which version serves, and an engine that runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from verso_core.errors import HeadUnknown
from verso_core.heads import Head, Task
from verso_core.registry import Channel
from verso_worker.records.confidence import Statistics
from verso_worker.rules.ports import HeadEngine, Model

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServedHead:
    """The version of a head that does a job.

    model: the artifact whose encoder it reads.
    statistics: of its signals, where it has any.
    """

    head: Head
    folder: Path
    channel: Channel
    model: Model
    statistics: Statistics | None

    def run(self, call: Callable[[HeadEngine, str, str], T]) -> T:
        """Call the engine with the head's name and version, loading the head where it must be.

        An engine forgets its heads when it is restarted, so one is loaded when it is missed.
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


class Heads(Protocol):
    """The heads this platform serves."""

    def get(self, name: str, *, task: Task, job: str | None) -> ServedHead:
        """Return the version of a head that does a job; where ``job`` is None, the stable one.

        Raises:
            HeadUnknown: there is none of this name, or it does another task.
            HeadInvalid: its folder is not one, and no earlier version was served.
        """

    def run_job(self, names: Sequence[str], call: Callable[[str | None], T], *, job: str) -> T:
        """Run a job with the heads that its id chooses, and again if one of them fails it.

        Args:
            names: the heads that the slice names.
            call: runs the job with the channels of the job id it is given; given None, with stable
                versions only.
            job: the job's id.
        """

    def rival(self, canary: ServedHead) -> ServedHead | None:
        """Return the stable version of a head whose canary does a job, if it can be asked as
        well.
        """

    def compared(self, canary: ServedHead, *, agreed: int, differed: int) -> None:
        """Note on how many subjects a canary and its rival said the same."""

    def states(self) -> list[dict[str, Any]]:
        """Describe all heads, by name."""

    def report(self, name: str, channel: Channel) -> tuple[str, bytes]:
        """Return the version that a channel serves, and its card: Markdown, UTF-8.

        Raises:
            HeadUnknown: the channel serves none of this name.
            HeadInvalid: its folder is not one.
        """


class NoHeads:
    """The heads of a platform that has none."""

    def get(self, name: str, *, task: Task, job: str | None) -> ServedHead:  # noqa: ARG002
        """Raise HeadUnknown."""
        raise HeadUnknown(f"no head {name!r}: this worker serves none")

    def run_job(self, names: Sequence[str], call: Callable[[str | None], T], *, job: str) -> T:  # noqa: ARG002
        """Run the job."""
        return call(job)

    def rival(self, canary: ServedHead) -> ServedHead | None:  # noqa: ARG002
        """Return none."""
        return None

    def compared(self, canary: ServedHead, *, agreed: int, differed: int) -> None:
        """Note nothing."""

    def states(self) -> list[dict[str, Any]]:
        """Describe no head."""
        return []

    def report(self, name: str, channel: Channel) -> tuple[str, bytes]:  # noqa: ARG002
        """Raise HeadUnknown."""
        raise HeadUnknown(f"no head {name!r}: this worker serves none")
