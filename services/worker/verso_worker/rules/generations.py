"""Which fitted tables write into a collection, and how new ones prove themselves.

A new generation is a canary: it writes a share of the slices. The verify of every slice reads its
records from the stores alone. Once enough of them have read back, the generation writes all slices.
If one does not, it is withdrawn at once, the document is coded again without any tables, and its
other records stay readable as long as their tables are.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from verso_core.errors import ArtifactInvalid, CollectionUnknown
from verso_core.jobs import Collection
from verso_core.jobs.fitting import PROVED, GenerationStage
from verso_core.record import Codec, Entry
from verso_worker.records import generation
from verso_worker.rules.ports.models import Model, Models, Tables

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Generations:
    """Chooses the tables that write a slice, and counts what was read back of theirs."""

    models: Models
    tables: Tables

    def writing(self, collection: Collection, *, seq: int) -> Model:
        """Return the model that writes a slice: an artifact, maybe with fitted tables.

        Tables that are damaged, or that decode to other texts on this machine, are withdrawn.

        Args:
            collection: where it writes.
            seq: sequence number of the slice.
        """
        model = self.models.writing(collection)
        name = collection.fitting.writes(model.codec, seq=seq)
        if name is None:
            return model
        try:
            return self.models.get(name)
        except ArtifactInvalid as error:
            self._withdraw(collection, name, error.detail)
            return model

    def coding(self, collection: Collection, model: Model) -> Model:
        """Return a model with the tables that the collection writes with, if they extend it."""
        serving = collection.fitting.find(GenerationStage.SERVING)
        if serving is None or not serving.id.startswith(f"{model.codec}."):
            return model
        return self.models.get(serving.id)

    def correct(self, collection: Collection) -> int:
        """Set tables right in which one bit was flipped; return of how many generations.

        Tables with more damage stay as they are: every document that needs them is named.
        """
        count = 0
        for one in collection.fitting.generations:
            stored = self.tables.tables(one.id)
            if stored is None:
                continue
            try:
                packed = generation.opened(one.id, stored)
            except ArtifactInvalid:
                continue
            if stored not in (packed, generation.closed(packed)):
                self.tables.correct(one.id, generation.closed(packed))
                _log.warning("damaged tables were set right", extra={"generation": one.id})
                count += 1
        return count

    def verified(
        self, collection: Collection, sound: Iterable[Entry], broken: Iterable[Entry]
    ) -> None:
        """Count the records that read back of the canary, and withdraw what did not read back."""
        for name in self._named(collection, broken):
            self._withdraw(collection, name, "a record did not read back")
        for name, records in self._named(collection, sound).items():
            stages = {one.id: one.stage for one in collection.fitting.generations}
            if stages[name] is not GenerationStage.CANARY:
                continue
            if self.tables.verified(collection.name, name, records) >= PROVED:
                self._move(collection, name, GenerationStage.SERVING)
                _log.info("fitted tables serve", extra={"generation": name})

    def _named(self, collection: Collection, entries: Iterable[Entry]) -> Counter[str]:
        """Count the records that fitted tables coded, by their generation."""
        known = {one.id for one in collection.fitting.generations}
        records = (record for entry in entries for record in entry.records)
        slots = Counter(record.slot for record in records if record.codec is Codec.MIXTURE)
        names = collection.artifacts
        return Counter(
            {
                names[slot]: count
                for slot, count in slots.items()
                if slot < len(names) and names[slot] in known
            }
        )

    def _withdraw(self, collection: Collection, name: str, reason: str) -> None:
        _log.error("fitted tables %s withdrawn: %s", name, reason)
        self._move(collection, name, GenerationStage.WITHDRAWN)

    def _move(self, collection: Collection, name: str, stage: GenerationStage) -> None:
        try:
            self.tables.stage(collection.name, name, stage)
        except CollectionUnknown:  # it was deleted meanwhile
            return
