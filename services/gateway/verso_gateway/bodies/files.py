"""A body that is a file, as the documents that are stored of it.

What a file says of itself goes to metadata; what the sender says has precedence. The text of pages
is one document, in which ``PAGE_END`` tells them apart, or a document a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query

from verso_core.errors import MetadataInvalid, RequestInvalid, TextTooLarge
from verso_core.texts import MAX_TEXT_BYTES
from verso_gateway.bodies import reading
from verso_gateway.extract.content import Content


@dataclass(frozen=True, slots=True)
class FileFields:
    """What a sender says of a file, besides its media type.

    Attributes:
        name: its name, or empty.
        id: of the document; of those of pages, what stands before the number.
        metadata: added to what the file says of itself.
        time: of the document; None for what the file says.
        pages: whether each page is a document.
    """

    name: str
    id: str | None
    metadata: Mapping[str, Any]
    time: float | str | None
    pages: bool


def file_fields(
    name: Annotated[
        str,
        Query(max_length=1024, description="of a file: its name; goes to metadata as `source`"),
    ] = "",
    id: Annotated[  # noqa: A002 - the parameter's name
        str | None, Query(description="of a file: id of its document; by default a new one")
    ] = None,
    metadata: Annotated[
        str | None,
        Query(description="of a file: a JSON object, added to what the file says of itself"),
    ] = None,
    time: Annotated[
        str | None, Query(description="of a file: Unix seconds or RFC 3339 with an offset")
    ] = None,
    pages: Annotated[
        bool, Query(description="of a file: each page is a document, with the id `ID/PAGE`")
    ] = False,
) -> FileFields:
    """Return what the query says of a file.

    Raises:
        MetadataInvalid: the metadata is no JSON object.
    """
    own: Any = {}
    if metadata is not None:
        try:
            own = reading.parse_bounded(metadata.encode(), reading.LONGEST_ARRAY)
        except (RequestInvalid, UnicodeEncodeError) as exc:
            raise MetadataInvalid("expected a JSON object as metadata") from exc
        if not isinstance(own, dict):
            raise MetadataInvalid(f"expected an object, got {type(own).__name__}")
    return FileFields(name, id, own, _seconds(time), pages)


def documents_of(content: Content, fields: FileFields) -> list[dict[str, Any]]:
    """Return the documents of a file, as an ingest takes them.

    Raises:
        TextTooLarge: all of its text is more than a document may have.
    """
    metadata = content.metadata(source=fields.name) | dict(fields.metadata)
    time = content.time if fields.time is None else fields.time
    if fields.pages and content.paged:
        return [
            _document(text, _page_id(fields.id, number), metadata | {"page": number}, time)
            for number, text in enumerate(content.parts, 1)
            if text
        ]
    size = len(content.text.encode())
    if size > MAX_TEXT_BYTES:
        raise TextTooLarge(
            f"expected <= {MAX_TEXT_BYTES} bytes of text in a file, got {size}: with pages=true "
            "each page is a document"
        )
    return [_document(content.text, fields.id, metadata, time)]


def _document(
    text: str,
    id: str | None,  # noqa: A002 - the field's name
    metadata: Mapping[str, Any],
    time: float | str | None,
) -> dict[str, Any]:
    row: dict[str, Any] = {"text": text, "metadata": dict(metadata), "time": time}
    return row if id is None else {"id": id, **row}


def _page_id(id: str | None, number: int) -> str | None:  # noqa: A002 - the field's name
    return None if id is None else f"{id}/{number}"


def _seconds(time: str | None) -> float | str | None:
    """Return Unix seconds in a query as a number, and any other time as it is."""
    try:
        return None if time is None else float(time)
    except ValueError:
        return time
