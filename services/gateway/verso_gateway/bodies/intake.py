"""Documents of a request as items of ingest slices.

A document that is refused becomes an item that carries its error, at its position, so that the
others are stored and the caller finds every answer where it expects it.

A document without an id gets a time-ordered one (:mod:`~verso_gateway.bodies.ids`): equal texts
stay documents of their own. A repeat is recognised by an id that the sender gave, or by the
request's idempotency key.
"""

from __future__ import annotations

import hashlib
import math
from datetime import datetime
from typing import Any

from verso_core.errors import (
    DuplicateId,
    RequestInvalid,
    TextNotEncodable,
    VersoError,
    error_body,
)
from verso_core.jobs import IngestItem, ItemError, Rejected
from verso_core.jobs.ingest import MAX_REFUSALS, Intaken, Refusal
from verso_core.jobs.logs.lines import line_place
from verso_core.texts import (
    Metadata,
    check_document_id,
    check_metadata,
    text_bytes,
    text_from_base64,
)
from verso_gateway.bodies.ids import NewId, ids_in_order
from verso_gateway.bodies.reading import encodable

_FIELDS = frozenset({"id", "text", "text_base64", "metadata", "time"})
_TIME_LIMIT_S = 253_402_300_800.0  # the year 10000, where ISO 8601 ends


class Intake:
    """Reads the documents of one request; remembers which ids it has seen.

    ``beside_lines``: the documents stand beside lines of a log, whose ids they may not have.
    ``new_id``: gives ids to documents without one.
    """

    def __init__(self, *, beside_lines: bool = False, new_id: NewId | None = None) -> None:
        self._beside_lines = beside_lines
        self._ids: set[bytes] = set()
        self._new_id = new_id or ids_in_order()
        self._refusals: list[Refusal] = []
        self.count = 0
        self.refused = 0

    @property
    def summary(self) -> Intaken:
        """How many documents were taken and refused, and the first reasons."""
        return Intaken(
            accepted=self.count - self.refused,
            refused=self.refused,
            refusals=tuple(self._refusals),
        )

    def take(self, document: object, *, where: str) -> IngestItem | Rejected:
        """Read one document.

        Args:
            document: the parsed JSON value.
            where: its position, for messages: ``line 7`` or ``document 6``.
        """
        self.count += 1
        try:
            return self._item(document)
        except VersoError as error:
            return self._rejected(document, error, where=where)

    def refuse(self, error: VersoError, *, where: str) -> Rejected:
        """Return the item of a document that could not be parsed."""
        self.count += 1
        return self._rejected(None, error, where=where)

    def _item(self, document: object) -> IngestItem:
        if not isinstance(document, dict):
            raise RequestInvalid(f"expected an object, got {type(document).__name__}")
        unknown = sorted(document.keys() - _FIELDS)
        if unknown:
            raise RequestInvalid(f"expected the keys {sorted(_FIELDS)}, got {unknown[0]!a}")
        text = _text(document)
        metadata = _metadata(document.get("metadata"))
        time_s = unix_seconds(document.get("time"))
        if document.get("id") is None:
            document_id = self._new_id(text)
        else:
            document_id = check_document_id(document["id"])
            if self._beside_lines and line_place(document_id) is not None:
                raise RequestInvalid("expected another id: stream:number is the id of a line")
            self._note(document_id)
        return IngestItem(id=document_id, text=text, metadata=metadata, time=time_s)

    def _note(self, document_id: str) -> None:
        # 16 bytes an id, however long: an upload may hold millions
        digest = hashlib.blake2b(document_id.encode(), digest_size=16).digest()
        if digest in self._ids:
            raise DuplicateId("the id stands earlier in this request")
        self._ids.add(digest)

    def _rejected(self, document: object, error: VersoError, *, where: str) -> Rejected:
        body = error_body(error)
        body["detail"] = f"{where}: {body['detail']}"
        given = document.get("id") if isinstance(document, dict) else None
        name = given[:256] if isinstance(given, str) and encodable(given) else None
        self.refused += 1
        if self.refused <= MAX_REFUSALS:
            self._refusals.append(Refusal(id=name, error=ItemError(**body)))
        return Rejected(body, name)


def _text(document: dict[str, Any]) -> bytes:
    text, text_base64 = document.get("text"), document.get("text_base64")
    if (text is None) == (text_base64 is None):
        raise RequestInvalid("expected exactly one of text and text_base64")
    if text is not None:
        if not isinstance(text, str):
            raise RequestInvalid(f"expected a string as text, got {type(text).__name__}")
        return text_bytes(text)
    if not isinstance(text_base64, str):
        raise RequestInvalid(f"expected a string as text_base64, got {type(text_base64).__name__}")
    return text_from_base64(text_base64)


def _metadata(metadata: object) -> Metadata:
    return check_metadata({} if metadata is None else metadata)


def unix_seconds(time: object) -> float | None:
    """Read a time: Unix seconds, or RFC 3339 text with an offset.

    Raises:
        RequestInvalid: it is none, or beyond the year 10000.
        TextNotEncodable: it holds a lone surrogate.
    """
    match time:
        case None:
            return None
        case bool():
            raise RequestInvalid("expected Unix seconds or an RFC 3339 string as time, got bool")
        case int() | float():
            time_s = float(time) if abs(time) < _TIME_LIMIT_S else math.inf
        case str():
            time_s = _parse_time(time)
        case _:
            raise RequestInvalid(
                f"expected Unix seconds or an RFC 3339 string as time, got {type(time).__name__}"
            )
    if not abs(time_s) < _TIME_LIMIT_S:
        raise RequestInvalid("expected a time before the year 10000")
    return time_s


def _parse_time(text: str) -> float:
    if not encodable(text):
        raise TextNotEncodable("lone surrogate in time")
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as exc:
        raise RequestInvalid("expected Unix seconds or an RFC 3339 string as time") from exc
    if parsed.tzinfo is None:
        raise RequestInvalid("expected a time with its offset from UTC, such as 'Z'")
    return parsed.timestamp()
