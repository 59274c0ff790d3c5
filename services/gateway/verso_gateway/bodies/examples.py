"""Examples of a training request: read and checked off the event loop, as they may be tens of MB.

Examples come in the JSON body's ``source``, or are the body: NDJSON or CSV.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import Request

from verso_core import questions
from verso_core.errors import TrainingDataInvalid
from verso_core.heads import Task
from verso_core.jobs import train
from verso_core.jobs.train import Grouped, Labelled, Scored, TrainRequest
from verso_gateway.bodies import labelled, reading
from verso_gateway.bodies.labelled import Columns
from verso_gateway.bodies.limits import NDJSON

_PAIR = ("text_1", "text_2", "score")
_GROUP = ("question", "right", "wrong")


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples that passed the checks: their number, and their bytes for the trainer."""

    count: int
    packed: bytes


async def from_body(request: Request) -> tuple[TrainRequest, Examples | None]:
    """Return the request in a JSON body, and its examples if it has some.

    Raises:
        RequestInvalid: the body is no training request.
        TrainingDataInvalid: an example is invalid, or there are too few.
    """
    value = await reading.read_object(request, most_values=reading.MOST_LISTED)
    source = value.get("source")
    found = None
    if isinstance(source, dict):
        # The message names the position of an invalid example; the model of the whole body could
        # not. So the examples are checked here, and the model sees only that there are some.
        size = len(await request.body())
        found, source = await reading.off_loop(size, partial(_from_source, source))
        value = {**value, "source": source}
    return reading.validate(request, value, model=TrainRequest), found


async def from_rows(request: Request, columns: Columns, *, task: Task) -> Examples:
    """Return the examples in a body of JSON lines or CSV.

    Raises:
        TrainingDataInvalid: a row is invalid, or there are too few.
    """
    body, lines = await request.body(), reading.media_type(request) == NDJSON
    return await reading.off_loop(
        len(body), partial(_rows, body, columns=columns, task=task, lines=lines)
    )


def _from_source(source: dict[str, Any]) -> tuple[Examples | None, dict[str, Any]]:
    """Return the examples in a body's source, and the source without them."""
    found, left = None, dict(source)
    if source.get("rows") is not None:
        columns = Columns()
        keys = (columns.text, columns.label)
        found = _labelled(labelled.of_json(source["rows"], columns.row, name="rows", keys=keys))
        left["rows"] = []
    if source.get("pairs") is not None:
        found = _scored(labelled.of_json(source["pairs"], labelled.pair, name="pairs", keys=_PAIR))
        left["pairs"] = []
    if source.get("groups") is not None:
        given = source["groups"]
        found = _grouped(labelled.of_json(given, labelled.group, name="groups", keys=_GROUP))
        left["groups"] = []
    if source.get("squad") is not None:
        found = _asked(source["squad"])
        left["squad"] = {}
    return found, left


def _rows(body: bytes, *, columns: Columns, task: Task, lines: bool) -> Examples:
    if task is Task.SCORE and not lines:
        return _scored(labelled.from_csv(body, labelled.pair, names=_PAIR))
    if task is Task.SCORE:
        return _pairs_or_groups(body)
    names = (columns.text, columns.label)
    return _labelled(
        labelled.from_lines(body, columns.row)
        if lines
        else labelled.from_csv(body, columns.row, names=names)
    )


def _pairs_or_groups(body: bytes) -> Examples:
    """Read JSON lines for a head that scores: all of them groups if one has a question."""

    def made(value: dict[str, Any], where: str) -> Scored | Grouped:
        make = labelled.group if "question" in value else labelled.pair
        return make(value, where)

    found = labelled.from_lines(body, made)
    groups = [one for one in found if isinstance(one, Grouped)]
    pairs = [one for one in found if isinstance(one, Scored)]
    if groups and pairs:
        raise TrainingDataInvalid(f"expected pairs or groups, got {len(pairs)} and {len(groups)}")
    return _grouped(groups) if groups else _scored(pairs)


def _grouped(groups: list[Grouped]) -> Examples:
    train.check_groups(groups)
    return Examples(len(groups), train.pack_groups(groups))


def _labelled(rows: list[Labelled]) -> Examples:
    train.check_rows(rows)
    return Examples(len(rows), train.pack_rows(rows))


def _scored(pairs: list[Scored]) -> Examples:
    train.check_pairs(pairs)
    return Examples(len(pairs), train.pack_pairs(pairs))


def _asked(document: Any) -> Examples:
    paragraphs = questions.read(document)
    questions.check(paragraphs)
    count = sum(len(paragraph.questions) for paragraph in paragraphs)
    return Examples(count, questions.pack(paragraphs))
