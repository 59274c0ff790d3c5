"""Base classes of the job contracts, and the parts that several families share.

A family has up to five kinds of classes:

* a **request**, the JSON body of a route (:class:`StrictModel`: unknown keys are refused);
* **params**, what all items of a slice share (:class:`Params`);
* an **item**, one unit of work in a slice (:class:`Item`, a dataclass, which is parsed fastest);
* an **item result** (:class:`ItemResult`), which is also the JSON object that the API returns;
* a **response**, the JSON object of a route that adds something to its item results.

Results and responses are :class:`OpenModel`: a reader ignores keys that a newer writer added. A key
that was never set is absent from the JSON.

In a frame, texts and vectors are blobs instead of JSON strings (:class:`Text`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from verso_core.errors import ErrorBody, VersoError, error_body, from_body

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$", examples=["default"])]
StoredName = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}(\.[0-9]{1,5})?$", examples=["default"])
]
"""Name of a collection of a ledger: a partition's has a number behind a dot."""


class CollectionKind(StrEnum):
    """What a collection is made for."""

    DOCUMENTS = "documents"
    """Texts: each has vectors and patches of its own."""
    LOGS = "logs"
    """Log lines: the lines of one statement share a vector, and are coded together."""


class Precision(StrEnum):
    """How a collection's vectors are stored."""

    FLOAT16 = "float16"
    INT8 = "int8"
    INT4 = "int4"


class TextPolicy(StrEnum):
    """What a collection keeps of a text once its patch is verified."""

    PATCH = "patch"
    BOTH = "both"


class CodecPolicy(StrEnum):
    """What a collection's codecs are chosen by; it holds for records that are written later."""

    SMALLEST = "smallest"
    """The smallest payload, however long it takes to read."""
    BALANCED = "balanced"
    """A slower codec must save enough bytes for the time that each read takes."""
    FAST = "fast"
    """Only codecs that decode at 10 MB/s or faster."""


class SearchMode(StrEnum):
    """What a search compares: vectors, or the words of the text as well.

    As a collection's setting ``hybrid`` stores each chunk's words beside its vector.
    """

    DENSE = "dense"
    SPARSE = "sparse"
    HYBRID = "hybrid"


class IndexKind(StrEnum):
    """What an index over a metadata field finds: strings and booleans, or numbers."""

    KEYWORD = "keyword"
    NUMBER = "number"


SearchSetting = Literal[SearchMode.DENSE, SearchMode.HYBRID]


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


Moment = Annotated[
    datetime,
    PlainSerializer(_iso, when_used="json-unless-none"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""A time as the API writes it: ISO 8601, UTC, to the millisecond."""


def moment(time_s: float | None) -> datetime | None:
    """Return Unix seconds as a :data:`Moment`."""
    return None if time_s is None else datetime.fromtimestamp(time_s, UTC)


_PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types that a frame's header holds unchanged; other values are converted."""


class StrictModel(BaseModel):
    """A request body: an unknown key is refused, so that a typing error is not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def given(name: str) -> dict[str, Any]:
    """Return the JSON Schema rule that a field is there and not null."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def one_of(*names: str) -> dict[str, Any]:
    """Return the JSON Schema rule that exactly one of the fields is given."""
    return {"oneOf": [given(name) for name in names]}


def needs(name: str, other: str) -> dict[str, Any]:
    """Return the JSON Schema rule that a field needs another one."""
    return {"if": given(name), "then": given(other)}


class OpenModel(BaseModel):
    """A model that ignores unknown keys: its writer may be newer than its reader."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    def public(self, *, vectors_base64: bool = False) -> dict[str, Any]:  # noqa: ARG002
        """Return the JSON object that the API returns: the fields that were set.

        ``vectors_base64``: vectors as base64 of float32, not as numbers.
        """
        # model_dump takes twice as long, and this is done for every item of a job
        found: dict[str, Any] = self.__pydantic_serializer__.to_python(
            self, mode="json", exclude_unset=True
        )
        return found

    def frame_header(self, blobs: list[bytes]) -> dict[str, Any]:
        """Return the frame's object for this model, and append its blobs to ``blobs``."""
        known = self.__pydantic_fields_set__
        return {
            name: value if type(value) in _PLAIN else _frame_value(value, blobs)
            for name, value in self.__dict__.items()
            if name in known
        }


ITEM_COST = 64
"""Cost of an item besides its text; see :meth:`Params.cost`."""
WINDOW_COST = 2048
"""Most that a text costs of which one window is read."""
READ_COST = 1024
"""Cost of a stored text that is read back."""


class Params(OpenModel):
    """What all items of a slice share."""

    def header(self) -> dict[str, Any]:
        """Return the params as JSON: the fields that were set, each in full."""
        return self.model_dump(mode="json", include=self.model_fields_set)

    def cost(self, item: Item) -> int:
        """Return what an item takes to be worked on, in bytes of text that a model reads.

        It is an estimate from what the request says; turns of tenants are as long as it is large.
        """
        blob = None if item.BLOB is None else getattr(item, item.BLOB)
        return ITEM_COST + len(blob or b"")


ALWAYS = {"always": True}
"""Metadata of a dataclass field with a default: a frame has the field even if it is the default."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a slice. ``BLOB`` names the field of type bytes, if there is one."""

    BLOB: ClassVar[str | None] = None


@dataclass(frozen=True, slots=True)
class NoItem(Item):
    """The one item of a job that needs no more than its params."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """An item that the gateway refused; the worker returns its error as the item's result."""

    error: ErrorBody
    id: str | None = None


@dataclass(frozen=True, slots=True)
class BucketRange(Item):
    """A range of a collection's buckets, and the seconds after which to stop.

    ``since``: only documents with a greater sequence number. ``to``: nothing is scrubbed, and the
    objects of cold storage are copied there, to ``ledger/uid``; the range is of their parts.
    """

    first: int
    count: int
    spend_s: float
    since: int | None = None
    to: str | None = None


class ItemError(OpenModel):
    """Why one item of a batch, or a job, failed."""

    code: str
    detail: str
    retryable: bool = False

    @classmethod
    def of(cls, error: BaseException) -> ItemError:
        """Describe an error; of a foreign exception, by its class name only."""
        return cls(**error_body(error))

    def exception(self) -> VersoError:
        """Return the error as an exception of its class."""
        return from_body({"code": self.code, "detail": self.detail, "retryable": self.retryable})


MissingPartitions = Annotated[
    tuple[str, ...],
    Field(description="partitions that their ledgers no longer have: they are left out"),
]


class ItemResult(OpenModel):
    """Result of one item. In a frame it has a key ``ok`` as well."""


class Failed(ItemResult):
    """An item that failed; ``id`` and ``chunk`` if the item named a document or record."""

    error: ItemError
    id: str | None = None
    chunk: int | None = None

    @classmethod
    def of(cls, error: BaseException | ErrorBody, **about: Any) -> Failed:
        """Describe a failed item; ``about``: its id and chunk, if it has them."""
        body = error if isinstance(error, dict) else error_body(error)
        return cls(error=ItemError(**body), **about)

    @classmethod
    def rejected(cls, item: Rejected) -> Failed:
        """Return the error of an item that the gateway refused."""
        return cls(error=ItemError(**item.error))


class Text(OpenModel):
    """An object with a text: ``text`` if its bytes are UTF-8, else ``text_base64``."""

    text: str | None = None
    text_base64: str | None = None

    @property
    def data(self) -> bytes:
        """The exact bytes of the text.

        Raises:
            ValueError: this object carries no text.
        """
        if self.text_base64 is not None:
            return base64.b64decode(self.text_base64, validate=True)
        if self.text is None:
            raise ValueError("this answer carries no text")
        return self.text.encode("utf-8")

    @model_validator(mode="before")
    @classmethod
    def _from_frame(cls, value: Any, info: ValidationInfo) -> Any:
        """Replace the blob's index by the text, when read from a frame."""
        if info.context is None or not isinstance(value, dict):
            return value
        return cls.from_header(value, info.context)

    @classmethod
    def from_header(cls, header: Mapping[str, Any], blobs: list[bytes]) -> dict[str, Any]:
        """Return the fields that a frame's object stands for."""
        found = {k: v for k, v in header.items() if v is not None or k not in ("error", "blob")}
        index = found.pop("blob", None)
        return found if index is None else found | text_field(blobs[index])

    def frame_header(self, blobs: list[bytes]) -> dict[str, Any]:
        """Return the frame's object, in which the text is a blob."""
        header = super().frame_header(blobs)
        if "text" in header or "text_base64" in header:
            header.pop("text", None)
            header.pop("text_base64", None)
            header["blob"] = len(blobs)
            blobs.append(self.data)
        return header


class RecordText(Text):
    """A stored record: ``id`` is its name, document#chunk. A frame holds document and chunk."""

    @classmethod
    def from_header(cls, header: Mapping[str, Any], blobs: list[bytes]) -> dict[str, Any]:
        """Return the fields that a frame's object stands for."""
        found = Text.from_header(header, blobs)
        if "id" in found:
            found |= record_name(found["id"], found["chunk"])
        return found

    def frame_header(self, blobs: list[bytes]) -> dict[str, Any]:
        """Return the frame's object, in which the text is a blob and the id the document's."""
        header = super().frame_header(blobs)
        if "document" in header:
            header["id"] = header.pop("document")
        return header


def record_name(document: str, chunk: int) -> dict[str, Any]:
    """Return the fields that name a record."""
    return {"id": f"{document}#{chunk}", "document": document, "chunk": chunk}


def text_field(data: bytes) -> dict[str, str]:
    """Return the one field that carries a text."""
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"text_base64": base64.b64encode(data).decode("ascii")}


def _frame_value(value: Any, blobs: list[bytes]) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        return {key: _frame_value(one, blobs) for key, one in value.items()}
    if kind is list or kind is tuple:
        return [_frame_value(one, blobs) for one in value]
    if isinstance(value, OpenModel):
        return value.frame_header(blobs)
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
