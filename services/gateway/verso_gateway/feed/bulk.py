"""Elasticsearch's bulk API: actions and their documents, a line each.

Source: Elasticsearch reference, "Bulk API". ``index`` and ``create`` write; ``update`` and
``delete`` are refused item by item, as lines of a log do not change. Blank lines are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from verso_core.errors import BodyTooLarge, IdInvalid, KindUnsupported, RequestInvalid
from verso_core.texts import MAX_ID_BYTES
from verso_gateway.feed import mapping
from verso_gateway.feed.records import MOST_RECORDS, Decoded, FieldMap

_WRITES = frozenset({"index", "create"})
_ACTIONS = _WRITES | {"update", "delete"}


@dataclass(frozen=True, slots=True)
class Action:
    """One action of a request.

    Attributes:
        name: index, create, update or delete.
        index: that it names, or that of the request.
        identity: its ``_id``; None if it has none.
        decoded: the record, or why there is none.
    """

    name: str
    index: str
    identity: str | None
    decoded: Decoded


def decode(body: bytes, fields: FieldMap, *, index: str = "") -> list[Action]:
    """Return the actions of a request, in order.

    Args:
        body: the request's body.
        fields: which fields of a document are text, time and labels.
        index: of actions that name none.

    Raises:
        RequestInvalid: a line that must be an action is none, so that what follows cannot be
            read either.
        BodyTooLarge: there are more lines than of ``MOST_RECORDS``.
    """
    if body.count(b"\n") > 2 * MOST_RECORDS:
        raise BodyTooLarge(f"expected <= {MOST_RECORDS} actions in a request, got more")
    return list(_actions(body, fields, index))


def _actions(body: bytes, fields: FieldMap, index: str) -> Iterator[Action]:
    rows = iter(
        [(n, row) for n, row in enumerate(body.split(b"\n"), 1) if row and not row.isspace()]
    )
    for number, row in rows:
        name, about = _action(row, number)
        target, identity = about.get("_index", index), about.get("_id")
        source = None if name == "delete" else next(rows, (0, None))[1]
        decoded: Decoded
        if not isinstance(target, str) or not target:
            target, decoded = "", RequestInvalid("expected an index")
        elif name not in _WRITES:
            decoded = KindUnsupported(f"expected index or create, got {name}: lines do not change")
        elif source is None:
            raise RequestInvalid(f"expected a document behind the action of line {number}")
        elif isinstance(identity, (int, float)):  # clients that write JSON without quotes
            identity = str(identity)
            decoded = mapping.decode_row(source, fields, source=target)
        else:
            decoded = mapping.decode_row(source, fields, source=target)
        if identity is not None and not _is_id(identity):
            decoded = IdInvalid(f"expected an _id of 1..{MAX_ID_BYTES} bytes")
        yield Action(name, target, identity if isinstance(identity, str) else None, decoded)


def _action(row: bytes, number: int) -> tuple[str, dict[str, Any]]:
    """Read the line of an action.

    Raises:
        RequestInvalid: it is none.
    """
    try:
        value = orjson.loads(row)
    except orjson.JSONDecodeError as exc:
        raise RequestInvalid(f"Malformed action/metadata line [{number}]: {exc.msg}") from exc
    if isinstance(value, dict):
        found = [pair for pair in value.items() if pair[0] in _ACTIONS]
        # Elasticsearch 8 ignores what is beside it; winston-elasticsearch counts its tries there
        if len(found) == 1 and isinstance(found[0][1], dict):
            return found[0]
    raise RequestInvalid(
        f"Malformed action/metadata line [{number}]: expected an object of one action, "
        f"{', '.join(sorted(_ACTIONS))}"
    )


def _is_id(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value.encode()) <= MAX_ID_BYTES
