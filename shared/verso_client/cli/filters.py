"""Filters on the command line: ``--where host=a --where 'level!=debug'`` and ``--filter JSON``.

Each ``--where`` is a field, an operator and a value: ``=`` equals, ``!=`` does not, ``>`` ``>=``
``<`` ``<=`` compare numbers, ``^=`` begins with. A value is read as JSON where it is a scalar, else
as a string; of the field ``time`` it is a time as all commands take it, such as ``2h``. Several
``=`` of one field are alternatives, all else must hold together.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from verso_client.cli.sources import scalar
from verso_client.cli.terminal import time_of
from verso_core.jobs import Filter
from verso_core.jobs.filters.nodes import TIME

Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        "-w",
        help="field=value, also != > >= < <= and ^= (begins with), such as time>=2h; several must "
        "all hold, several values of a field are alternatives.",
    ),
]
FilterJson = Annotated[
    str | None, typer.Option("--filter", help="A filter as JSON, as the API takes it.")
]
_CONDITION = re.compile(r"(?P<field>.+?)(?P<sign>!=|>=|<=|\^=|=|>|<)(?P<value>.*)", re.DOTALL)
_OPERATORS = {"!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "^=": "prefix"}


def filter_of(
    where: list[str] | None,
    text: str | None = None,
    *,
    since: float | None = None,
    until: float | None = None,
) -> Filter | None:
    """Return the filter that options ask for; None without any.

    Raises:
        typer.BadParameter: an option is no condition, or not JSON of a filter.
    """
    parts: list[Any] = []
    alternatives: dict[str, list[Any]] = {}
    for one in where or []:
        field, operator, value = _parsed(one)
        if operator == "eq":
            alternatives.setdefault(field, []).append(value)
        else:
            parts.append({"field": field, operator: value})
    for field, values in alternatives.items():
        alone = {"eq": values[0]} if len(values) == 1 else {"in": values}
        parts.append({"field": field, **alone})
    times = {"gte": since, "lt": until}
    if given := {name: time for name, time in times.items() if time is not None}:
        parts.append({"field": "time", **given})
    if text is not None:
        parts.append(_json(text))
    if not parts:
        return None
    try:
        return Filter.model_validate(parts[0] if len(parts) == 1 else {"and": parts})
    except ValidationError as exc:
        raise typer.BadParameter(str(exc.errors()[0]["msg"])) from exc


def _parsed(condition: str) -> tuple[str, str, Any]:
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise typer.BadParameter(f"expected field=value, got {condition!r}")
    operator = _OPERATORS.get(match["sign"], "eq")
    field, text = match["field"], match["value"]
    value = text if operator == "prefix" else scalar(text)
    if field == TIME and operator != "prefix" and isinstance(value, str):
        value = time_of(value)
    return field, operator, value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise typer.BadParameter(f"expected JSON as filter: {exc}") from exc
