"""The metadata that calls filter a collection by, so that an index of it is built in time."""

from __future__ import annotations

from collections.abc import Mapping

from verso_core.jobs import IndexKind
from verso_core.jobs.filters.nodes import Exists, Node, OneOf, Test, Within, path_of, tests_in
from verso_worker.records.points import kept_value, path_in_payload

_MOST = 16  # fields indexed for a collection: their names come from users


class FilteredFields:
    """Fields that were filtered by, and which of them the engine was told to index."""

    def __init__(self) -> None:
        self._indexed: set[str] = set()
        self._wanted: dict[str, IndexKind] = {}

    @property
    def wanted(self) -> dict[str, IndexKind]:
        """Paths of fields without an index, with the kind that helps most."""
        return dict(self._wanted)

    def note(self, passing: Node | bool) -> None:
        """Record which metadata a call filters by."""
        if isinstance(passing, bool):
            return
        for test in tests_in(passing):
            known = len(self._indexed) + len(self._wanted)
            if known >= _MOST or path_of(test.field) is None or isinstance(test, Exists):
                continue
            path = path_in_payload(test.field)
            if path not in self._indexed:
                self._wanted.setdefault(path, _kind_for(test))

    def want(self, fields: Mapping[str, IndexKind]) -> None:
        """Record fields that are to have an index, by their paths."""
        self._wanted |= fields

    def indexed(self, fields: Mapping[str, IndexKind]) -> None:
        """Record that the engine was told to index fields."""
        self._indexed |= fields.keys()
        for path in fields:
            self._wanted.pop(path, None)


def _kind_for(test: Test) -> IndexKind:
    """Return the kind of index that helps a test most."""
    numbers = isinstance(test, Within) or (
        isinstance(test, OneOf) and any(isinstance(kept_value(one), float) for one in test.values)
    )
    return IndexKind.NUMBER if numbers else IndexKind.KEYWORD
