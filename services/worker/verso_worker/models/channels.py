"""Which artifacts the channels serve, and the artifacts as a canary's jobs see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verso_core.jobs import Collection
from verso_core.registry import Channel
from verso_worker.resource_metrics import KEPT
from verso_worker.rules.ports.models import Model, Models


@dataclass(frozen=True, slots=True)
class Served:
    """The codecs that the channels serve, and those that serve by their artifacts' names."""

    stable: str
    canary: str | None = None
    share: float = 0.0
    by_name: Mapping[str, str] = field(default_factory=dict)

    @property
    def codecs(self) -> frozenset[str]:
        """The codecs whose engines run on."""
        return frozenset({self.stable, self.canary or self.stable, *self.by_name.values()})

    def channel(self, codec: str) -> str:
        """Return the channel that an engine serves, or ``kept`` if only old records need it."""
        if codec == self.stable:
            return Channel.STABLE
        return Channel.CANARY if codec == self.canary else KEPT


@dataclass(frozen=True, slots=True)
class WithCanary:
    """The artifacts as a job of the canary's share sees them: it writes with the canary.

    Collections of another space than the canary's are written as usual. Implements
    :class:`verso_worker.rules.ports.models.Models`.
    """

    artifacts: Models
    codec: str

    def current(self) -> Model:
        """Return the canary."""
        return self.artifacts.get(self.codec)

    def writing(self, collection: Collection) -> Model:
        """Return the canary, or the usual writer of a collection that cannot take it."""
        model = self.current()
        writes = model.space == collection.space and collection.with_slot(model.codec) is not None
        return model if writes else self.artifacts.writing(collection)

    def named(self, name: str | None) -> Model:
        """Return the artifact that serves under a name; None is the canary."""
        return self.current() if name is None else self.artifacts.named(name)

    def get(self, codec: str) -> Model:
        """Return the artifact with this codec id."""
        return self.artifacts.get(codec)

    def codec_bytes(self, codec: str) -> int:
        """Return the size of the files that a codec decodes with."""
        return self.artifacts.codec_bytes(codec)

    def check_tables(self, codec: str, packed: bytes) -> None:
        """Read fitted tables as a load does, and decode their golden samples."""
        self.artifacts.check_tables(codec, packed)
