"""Group the lines of a log collection: by their statements, which are known, or these by vectors.

:class:`LogProjection` draws the statements as a map.

1. Count the lines of each statement, from the inventories of the segments.
2. A group is a statement; or, by vectors, the statements whose vectors are near.
3. Of the largest groups read the newest lines, and the first one for its time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_core.errors import KindUnsupported, RequestInvalid
from verso_core.jobs import Collection
from verso_core.jobs.cluster import (
    Clustered,
    ClusterParams,
    Colour,
    Group,
    Member,
    Method,
    Projected,
    ProjectParams,
)
from verso_core.jobs.logs.lines import line_id
from verso_core.jobs.models import text_field
from verso_worker.rules import projection
from verso_worker.rules.grouping import by_pairs
from verso_worker.rules.grouping.by_pairs import ALONE
from verso_worker.rules.logs.blocks import Blocks
from verso_worker.rules.logs.collection import LogStore
from verso_worker.rules.logs.conditions import Condition
from verso_worker.rules.logs.counting import Counts, by_statement
from verso_worker.rules.logs.index import Statements
from verso_worker.rules.logs.occurrences import Found, FoundLine, Occurrences

MAX_ROWS = 20_000
"""Most vectors that are compared, each with each."""


@dataclass(frozen=True, slots=True)
class LogCluster:
    """Groups lines in blocks."""

    store: LogStore
    blocks: Blocks

    def run(self, collection: Collection, asked: ClusterParams) -> Clustered:
        """Group the lines of a collection, and describe the largest groups.

        Raises:
            RequestInvalid: there are too many statements to compare their vectors.
        """
        log = self.store.open(collection.name, dim=collection.dim)
        statements = log.statements()
        counts = by_statement(log, statements, self.blocks)
        groups = _groups(statements, counts, asked)
        sizes = np.array([counts[group].sum() for group in groups], np.int64)
        largest = [groups[n] for n in np.argsort(-sizes, kind="stable")[: asked.limit].tolist()]
        named = [statement for group in largest for statement in group]
        held = Occurrences(
            log, statements, self.blocks, Condition(True), keep=max(1, asked.representatives)
        )
        found = {
            one.statement: one for one in held.best(named, np.zeros(len(counts)), count=len(named))
        }
        return Clustered(
            records=int(counts.sum()),
            clusters=len(groups),
            alone=int(counts.sum() - sizes.sum()),
            unread=0,
            groups=tuple(_described(group, statements, counts, found, asked) for group in largest),
        )


@dataclass(frozen=True, slots=True)
class LogProjection:
    """Draws the statements of log collections as a map."""

    store: LogStore
    blocks: Blocks

    def run(self, collection: Collection, asked: ProjectParams) -> Projected:
        """Draw the most frequent statements.

        Raises:
            KindUnsupported: they were to be coloured by a label.
        """
        if asked.colour is Colour.LABEL:
            raise KindUnsupported("expected colour group or none: a statement has many labels")
        log = self.store.open(collection.name, dim=collection.dim)
        statements = log.statements()
        counts = by_statement(log, statements, self.blocks)
        there = np.flatnonzero((counts > 0) & statements.vectors.any(axis=1))
        shown = there[np.argsort(-counts[there], kind="stable")][: asked.limit]
        vectors = statements.vectors[shown]
        drawn = projection.project(vectors)
        colour, labels = np.full(len(shown), projection.NONE, np.int64), []
        if asked.colour is Colour.GROUP and len(shown):
            colour, middle = projection.groups(vectors, count=asked.groups)
            labels = [projection.shortened(statements.texts[shown[n]]) for n in middle]
        named = statements.names()
        return Projected(
            records=int((counts > 0).sum()),
            explained=drawn.explained,
            ids=tuple(str(named[one]) for one in shown.tolist()),
            x=drawn.x,
            y=drawn.y,
            colour=tuple(colour.tolist()),
            colours=projection.counted(colour, labels),
            lines=tuple(counts[shown].tolist()),
            templates=tuple(projection.shortened(statements.texts[one]) for one in shown.tolist()),
        )


def _groups(statements: Statements, counts: Counts, asked: ClusterParams) -> list[list[int]]:
    """Return the statements of each group, those that have lines."""
    there = np.flatnonzero(counts)
    if asked.method in (None, Method.TEMPLATES):
        return [[n] for n in there.tolist()]
    there = there[statements.vectors[there].any(axis=1)]
    # As many lines of one statement as make a group are one by themselves.
    copies = np.minimum(counts[there], max(asked.min_samples, asked.min_size))
    if (rows := int(copies.sum())) > MAX_ROWS:
        raise RequestInvalid(
            f"expected at most {MAX_ROWS} vectors of statements to compare, got {rows}: "
            "the method templates has no limit"
        )
    vectors = np.repeat(statements.vectors[there], copies, axis=0)
    if asked.method is Method.HDBSCAN:
        found = by_pairs.by_stability(
            vectors, min_size=asked.min_size, min_samples=asked.min_samples
        )
    else:
        found = by_pairs.by_density(vectors, eps=asked.eps, min_samples=asked.min_samples)
    labels: NDArray[np.int64] = found[np.cumsum(copies) - copies]
    own: dict[int, list[int]] = defaultdict(list)
    for statement, label in zip(there.tolist(), labels.tolist(), strict=True):
        own[label].append(statement)
    own.pop(ALONE, None)
    return list(own.values())


def _described(
    group: Sequence[int],
    statements: Statements,
    counts: Counts,
    found: dict[int, Found],
    asked: ClusterParams,
) -> Group:
    own = [found[statement] for statement in group if statement in found]
    lines = sorted((line for one in own for line in one.lines), key=_newest_first)
    first = _seconds(min((one.first_ns for one in own if one.first_ns is not None), default=None))
    last = _seconds(max((one.last_ns for one in own if one.last_ns is not None), default=None))
    return Group(
        size=int(counts[list(group)].sum()),
        template=statements.texts[max(group, key=lambda statement: int(counts[statement]))],
        first_seen=first,
        last_seen=last,
        new=None if asked.since is None or first is None else first >= asked.since,
        representatives=tuple(map(_member, lines[: asked.representatives])),
    )


def _newest_first(line: FoundLine) -> tuple[int, int]:
    return -line.time_ns, -line.number


def _seconds(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / 1e9


def _member(line: FoundLine) -> Member:
    fields = {"id": line_id(line.stream, line.number), "time": line.time_ns / 1e9}
    return Member.model_validate(fields | text_field(line.text))
