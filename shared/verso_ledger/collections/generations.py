"""Tables that collections have fitted to their texts, and which of them write."""

from __future__ import annotations

import time
from typing import cast

from verso_core.errors import CollectionBusy, CollectionUnknown, LedgerBehind
from verso_core.jobs import Collection
from verso_core.jobs.collections import FREE_SLOT
from verso_core.jobs.fitting import Fitting, Generation, GenerationStage
from verso_ledger.codec import collection_rows, scalars
from verso_ledger.collections.documents import Documents
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.scripts import Scripts


class Generations:
    """The fitted tables of collections; every change is one step."""

    def __init__(self, scripts: Scripts, documents: Documents) -> None:
        self._run = scripts.run
        self._redis = scripts.client
        self._documents = documents

    def tables(self, generation: str) -> bytes | None:
        """Return tables as they are stored; None where the generation is deleted."""
        with translated():
            return cast("bytes | None", self._redis.get(key("tables", generation)))

    def correct(self, generation: str, tables: bytes) -> None:
        """Replace damaged tables by what they were, unless the generation is deleted."""
        with translated():
            self._redis.set(key("tables", generation), tables, xx=True)

    def add(
        self, name: str, generation: Generation, tables: bytes, *, number: int, chunks: int
    ) -> bool:
        """Store new tables as the collection's canary, unless its fit ``number`` has ended already.

        An earlier canary is retired. Return False if that fit has ended, or all artifact slots are
        in use.

        Raises:
            CollectionUnknown: there is no collection of this own name.
            LedgerBehind: the ledger is older than what it has acknowledged.
        """
        while True:
            stored = self._row(name)
            old = collection_rows.load(stored)
            fitting = old.fitting
            if any(one.id == generation.id for one in fitting.generations):
                return True  # our own call, repeated
            slots = old.with_slot(generation.id)
            if fitting.number != number or slots is None:
                return False
            canary = fitting.find(GenerationStage.CANARY)
            if canary is not None:
                fitting = fitting.staged(canary.id, GenerationStage.RETIRED, now=time.time())
            after = fitting.model_copy(
                update={
                    "number": number + 1,
                    "chunks": chunks,
                    "gained": True,
                    "generations": (*fitting.generations, generation),
                }
            )
            new = old.model_copy(update={"artifacts": slots, "fitting": after})
            rows: list[scalars.Arg] = [
                name,
                stored,
                collection_rows.dump(new),
                generation.id,
                tables,
            ]
            if self._changed("generation_add", rows):
                return True

    def tried(self, name: str, *, number: int, chunks: int) -> None:
        """Record that the fit ``number`` of a collection made no generation.

        Raises:
            CollectionUnknown: there is no collection of this own name.
        """

        def ended(old: Collection) -> Collection:
            if old.fitting.number != number:
                return old
            update = {"number": number + 1, "chunks": chunks, "gained": False}
            return old.model_copy(update={"fitting": old.fitting.model_copy(update=update)})

        self._documents.collection_change(name, ended)

    def verified(self, name: str, generation: str, records: int) -> int:
        """Count records of a generation that read back; return how many have so far."""
        uid = self._uid(name)
        with translated():
            return int(self._redis.hincrby(key("generations", uid), generation, records))

    def stage(self, name: str, generation: str, stage: GenerationStage) -> Fitting:
        """Put a generation in another stage, and return what the collection has fitted then.

        Raises:
            CollectionUnknown: there is no collection of this own name.
        """

        def moved(old: Collection) -> Collection:
            fitting = old.fitting.staged(generation, stage, now=time.time())
            return old.model_copy(update={"fitting": fitting})

        return self._documents.collection_change(name, moved).fitting

    def drop(self, name: str, generation: str) -> bool:
        """Delete the tables of a generation, and free its slot; False if a record names them.

        Raises:
            CollectionUnknown: there is no collection of this own name.
            LedgerBehind: the ledger is older than what it has acknowledged.
        """
        stored = self._row(name)
        old = collection_rows.load(stored)
        if generation not in old.artifacts:
            return False
        slot = old.artifacts.index(generation)
        artifacts = (*old.artifacts[:slot], FREE_SLOT, *old.artifacts[slot + 1 :])
        left = tuple(one for one in old.fitting.generations if one.id != generation)
        fitting = old.fitting.model_copy(update={"generations": left})
        new = old.model_copy(update={"artifacts": artifacts, "fitting": fitting})
        rows: list[scalars.Arg] = [name, stored, collection_rows.dump(new), generation, slot]
        return self._changed("generation_drop", rows)

    def _changed(self, step: str, args: list[scalars.Arg]) -> bool:
        reply = self._run(step, args)
        if reply == b"read_only":
            raise LedgerBehind
        if reply == b"busy":
            raise CollectionBusy("the collection is being moved to another ledger")
        return bool(reply)

    def _uid(self, name: str) -> str:
        return scalars.text(self._field("uids", name))

    def _row(self, name: str) -> bytes:
        return self._field("collections", name)

    def _field(self, hash_name: str, name: str) -> bytes:
        with translated():
            row = self._redis.hget(key(hash_name), name)
        if row is None:
            raise CollectionUnknown(f"no collection is named {name[:64]!r}")
        return cast("bytes", row)
