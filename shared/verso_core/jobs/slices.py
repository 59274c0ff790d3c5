"""Slices on the wire: the table of contracts, and how payloads and results are written and read.

A **job** is one accepted request. It is cut into **slices**: a slice is claimed, leased, retried
and committed as a whole, and is small enough that a retry costs little. Its payload and its result
are frames (:mod:`verso_core.frame`) whose header holds one object for each item, in order, so that
every item has a result or an error of its own, and a bad text never fails the others.

The gateway writes payloads with :func:`cut`, the worker reads them with :func:`read_slice`. A
payload states the version of its format; one without is of version 0, which differs in nothing
else. Its last blob is a CRC of all before it (:mod:`verso_core.crc`), since texts and lines that
wait stand in the ledger once, and what they are stored as is compared with them. Workers of before
the CRC read such a payload too: no item names that blob.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Generic, TypeVar, cast

from verso_core import crc, frame
from verso_core.errors import FrameInvalid, NotReady
from verso_core.jobs import (
    cluster,
    collections,
    documents,
    fitting,
    ingest,
    migrate,
    reconstruct,
    registry,
    scrub,
    search,
    statistics,
    train,
)
from verso_core.jobs.heads import answer, classify, feedback, listing, report, score
from verso_core.jobs.job import Kind
from verso_core.jobs.logs import lines, views
from verso_core.jobs.models import (
    ITEM_COST,
    BucketRange,
    Failed,
    Item,
    ItemResult,
    NoItem,
    Params,
    Rejected,
)

VERSION = 1
"""Version of the payloads that this code writes; earlier ones are read as well."""

SLICE_ITEMS = 64
SLICE_BYTES = 128 * 1024
SLICE_COST = 128 * 1024
"""Cost of a slice of work that may be cut by it; some two seconds of two cores."""

_ALL = 1 << 30
_CHECK = "crc32"  # a payload whose header says so has a CRC

P = TypeVar("P", bound=Params)
I = TypeVar("I")  # noqa: E741 - an item, beside P and R
R = TypeVar("R", bound=ItemResult)


@dataclass(frozen=True, slots=True)
class Contract:
    """The classes of a kind's messages; an item may have one of several results."""

    params: type[Params]
    item: type[Item]
    result: type[ItemResult]


CONTRACTS: Mapping[Kind, Contract] = {
    Kind.EMBED: Contract(ingest.EmbedParams, ingest.EmbedItem, ingest.Embedded),
    Kind.INGEST: Contract(ingest.IngestParams, ingest.IngestItem, ingest.Ingested),
    Kind.INGEST_LINES: Contract(lines.IngestLinesParams, lines.LinesItem, lines.LinesIngested),
    Kind.DELETE: Contract(ingest.DeleteParams, ingest.DeleteItem, ingest.Deleted),
    Kind.LIST: Contract(documents.ListParams, NoItem, documents.DocumentPage),
    Kind.LINES: Contract(lines.LinesParams, NoItem, lines.LinesPage),
    Kind.VOLUME: Contract(views.VolumeParams, NoItem, views.Volume),
    Kind.LABELS: Contract(views.LabelsParams, NoItem, views.Labels),
    Kind.STATEMENTS: Contract(views.StatementsParams, NoItem, views.Statements),
    Kind.COUNT: Contract(documents.CountParams, NoItem, documents.Counted),
    Kind.FACETS: Contract(documents.FacetsParams, NoItem, documents.Facets),
    Kind.UPDATE: Contract(documents.UpdateParams, documents.UpdateItem, documents.Updated),
    Kind.DELETE_MATCHING: Contract(
        documents.DeleteMatchingParams, documents.PartItem, documents.DeletedMatching
    ),
    Kind.SEARCH: Contract(search.SearchParams, search.SearchItem, search.Hits),
    Kind.RECONSTRUCT: Contract(
        reconstruct.ReconstructParams, reconstruct.ReconstructItem, reconstruct.StoredText
    ),
    Kind.RECORDS: Contract(
        reconstruct.RecordsParams, reconstruct.RecordsItem, reconstruct.StoredRecords
    ),
    Kind.CLUSTER: Contract(cluster.ClusterParams, NoItem, cluster.Clustered),
    Kind.PROJECT: Contract(cluster.ProjectParams, NoItem, cluster.Projected),
    Kind.CLASSIFY: Contract(classify.ClassifyParams, classify.ClassifyItem, classify.Classified),
    Kind.FEEDBACK: Contract(feedback.FeedbackParams, feedback.FeedbackItem, feedback.FeedbackTaken),
    Kind.ANSWER: Contract(answer.AnswerParams, answer.AnswerItem, answer.Answered),
    Kind.SCORE: Contract(score.ScoreParams, score.ScoreItem, score.PairScore),
    Kind.HEADS: Contract(listing.HeadsParams, NoItem, listing.HeadList),
    Kind.COLLECTION_CREATE: Contract(
        collections.CollectionParams, NoItem, collections.CollectionInfo
    ),
    Kind.COLLECTION_CHANGE: Contract(
        collections.CollectionChangeParams, NoItem, collections.CollectionInfo
    ),
    Kind.COLLECTION_DELETE: Contract(
        collections.CollectionName, NoItem, collections.CollectionDeleted
    ),
    Kind.STATS: Contract(collections.CollectionName, NoItem, statistics.Statistics),
    Kind.SCRUB: Contract(scrub.ScrubParams, BucketRange, scrub.Scrubbed),
    Kind.MIGRATE: Contract(migrate.MigrateParams, migrate.MigrateItem, migrate.MigrationResult),
    Kind.FIT: Contract(fitting.FitParams, fitting.FitItem, fitting.Fitted),
    Kind.MODELS: Contract(registry.ModelsParams, NoItem, registry.RegistryResult),
    Kind.ROWS: Contract(train.RowsParams, train.RowsItem, train.Rows),
    Kind.TRAIN: Contract(train.TrainParams, train.TrainItem, train.Trained),
}


@dataclass(frozen=True, slots=True)
class Arrival:
    """Lines of a slice, of which readers of a live tail learn; ``uid``: of their collection."""

    uid: str
    lines: int


@dataclass(frozen=True, slots=True)
class SliceSpec:
    """A slice as it enters the ledger; ``cost``: see :meth:`Params.cost`, None for its bytes.

    ``arrival`` is set where the slice is of log lines.
    """

    payload: bytes
    items: int
    cost: int | None = None
    arrival: Arrival | None = None


@dataclass(frozen=True, slots=True)
class Slice(Generic[P, I]):
    """A slice as the worker sees it: items are of the kind's item class, or Rejected."""

    kind: Kind
    params: P
    items: tuple[I | Rejected, ...]

    @property
    def accepted(self) -> dict[int, I]:
        """Return the items that the gateway did not reject, by position."""
        return {n: item for n, item in enumerate(self.items) if not isinstance(item, Rejected)}

    def answered(self, found: Mapping[int, Any]) -> list[Any]:
        """Return the results of all items: ``found`` by position, an error for a rejected item."""
        return [
            Failed.rejected(item) if isinstance(item, Rejected) else found[index]
            for index, item in enumerate(self.items)
        ]

    @property
    def only(self) -> I:
        """Return the one item of a kind whose slices have one."""
        [item] = self.accepted.values()
        return item


AnySlice = Slice[Any, Any]
"""A slice of any kind."""


def cut(
    kind: Kind,
    params: Params,
    items: Iterable[Item | Rejected],
    *,
    max_items: int = SLICE_ITEMS,
    max_bytes: int = SLICE_BYTES,
    max_cost: int | None = None,
) -> Iterator[SliceSpec]:
    """Cut items into slices, in order; an item larger than a bound makes one alone."""
    codec, head = _CODECS[kind], {"version": VERSION, "kind": kind, "params": params.header()}
    headers: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    size, cost = 0, 0
    for item in items:
        blob = None if isinstance(item, Rejected) else codec.blob(item)
        item_bytes = 0 if blob is None else len(blob)
        item_cost = ITEM_COST if isinstance(item, Rejected) else params.cost(item)
        if headers and (
            len(headers) >= max_items
            or size + item_bytes > max_bytes
            or (max_cost is not None and cost + item_cost > max_cost)
        ):
            yield SliceSpec(_packed(head, headers, blobs), len(headers), cost)
            headers, blobs, size, cost = [], [], 0, 0
        header = codec.header(item)
        if blob is not None:
            header["blob"] = len(blobs)
            blobs.append(blob)
        headers.append(header)
        size += item_bytes
        cost += item_cost
    if headers:
        yield SliceSpec(_packed(head, headers, blobs), len(headers), cost)


def _packed(
    head: Mapping[str, Any], headers: Sequence[dict[str, Any]], blobs: Sequence[bytes]
) -> bytes:
    checked = {**head, "check": _CHECK, "items": headers}
    packed = frame.pack(checked, [*blobs, bytes(crc.CRC_BYTES)])
    return crc.closed(packed[: -crc.CRC_BYTES])


def cut_lines(params: lines.IngestLinesParams, item: lines.LinesItem) -> SliceSpec:
    """Return lines as a slice."""
    [spec] = cut(Kind.INGEST_LINES, params, [item], max_bytes=_ALL)
    return replace(spec, arrival=Arrival(params.uid, item.count))


def read_slice(payload: bytes) -> AnySlice:
    """Read what :func:`cut` wrote, in this version or an earlier one; a flipped bit is corrected.

    Raises:
        FrameInvalid: the payload is not a slice, or is damaged.
        NotReady: it is of a later version, whose workers run beside this one.
    """
    header, blobs = _unpacked(payload)
    version = header.get("version", 0)
    if isinstance(version, int) and version > VERSION:
        raise NotReady(f"expected a slice of version <= {VERSION}, got {version}")
    if version not in range(VERSION + 1):
        raise FrameInvalid(f"expected a slice of version <= {VERSION}, got {version!a}")
    try:
        kind = Kind(header["kind"])
        params = CONTRACTS[kind].params.model_validate(header["params"])
        read = _CODECS[kind].read
        items = tuple([read(item, blobs) for item in header["items"]])
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as exc:
        raise FrameInvalid(f"expected a slice, got a frame with {sorted(header)}") from exc
    return Slice(kind=kind, params=params, items=items)


def _unpacked(payload: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Return the header and the blobs of a payload, as they were written."""
    right = crc.corrected(payload)
    if right is not None:
        with suppress(FrameInvalid):
            header, blobs = frame.unpack(right)
            if header.get("check") == _CHECK:
                return header, blobs[:-1]
    # written before there was a CRC, or damaged in more than one bit
    header, blobs = frame.unpack(payload)
    if "check" in header or len(blobs) > _named_blobs(header):
        raise FrameInvalid("expected a slice and its CRC, got other bytes")
    return header, blobs


def _named_blobs(header: Mapping[str, Any]) -> int:
    items = header.get("items")
    rows = items if isinstance(items, list) else []
    return sum(isinstance(item, dict) and "blob" in item for item in rows)


@dataclass(slots=True)
class Result(Generic[R]):
    """The result of a slice: one object for each item, in order, and the phases' times."""

    items: list[R | Failed]
    timings_ms: dict[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> int:
        """Count the items that succeeded."""
        return sum(1 for item in self.items if not isinstance(item, Failed))

    @property
    def only(self) -> R:
        """Return the one item of a kind whose slices have one.

        Raises:
            VersoError: the item failed.
        """
        [item] = self.items
        if isinstance(item, Failed):
            raise item.error.exception()
        return item

    def pack(self) -> bytes:
        """Write the result as a frame."""
        blobs: list[bytes] = []
        items = [
            {"ok": not isinstance(item, Failed), **item.frame_header(blobs)} for item in self.items
        ]
        return frame.pack({"items": items, "timings_ms": self.timings_ms}, blobs)

    @classmethod
    def unpack(cls, kind: Kind, data: bytes) -> Result[Any]:
        """Read what :meth:`pack` wrote.

        Raises:
            FrameInvalid: the data is not the result of a slice of this kind.
        """
        header, blobs = frame.unpack(data)
        read = _RESULTS[kind]
        try:
            items = [
                read(item, blobs) if item["ok"] else Failed.model_validate(item)
                for item in header["items"]
            ]
            return Result(items=items, timings_ms=header["timings_ms"])
        except (KeyError, IndexError, TypeError, ValueError) as exc:
            raise FrameInvalid(f"expected a result of {kind}, got another frame") from exc


AnyResult = Result[Any]
"""The result of a slice of any kind."""


class _ItemCodec:
    """Writes and reads the items of a class; a field that equals its default is not written."""

    def __init__(self, cls: type[Item]) -> None:
        self._cls = cls
        self._blob = cls.BLOB
        own = [one for one in fields(cls) if one.name != cls.BLOB]
        self._always = [
            one.name for one in own if one.default is MISSING or "always" in one.metadata
        ]
        self._optional = [(one.name, one.default) for one in own if one.name not in self._always]
        self._names = {one.name for one in fields(cls)}

    def blob(self, item: Item) -> bytes | None:
        """Return an item's blob."""
        return None if self._blob is None else getattr(item, self._blob)

    def header(self, item: Item | Rejected) -> dict[str, Any]:
        """Return an item's object without its blob."""
        if isinstance(item, Rejected):
            header: dict[str, Any] = {"rejected": item.error}
            return header if item.id is None else {**header, "id": item.id}
        header = {name: getattr(item, name) for name in self._always}
        for name, default in self._optional:
            if (value := getattr(item, name)) != default:
                header[name] = value
        return header

    def read(self, header: dict[str, Any], blobs: Sequence[bytes]) -> Item | Rejected:
        """Read an item; keys that a newer gateway added are ignored."""
        if (error := header.get("rejected")) is not None:
            return Rejected(error, header.get("id"))
        index = header.pop("blob", None)
        if index is not None and self._blob is not None:
            header[self._blob] = blobs[index]
        if header.keys() - self._names:
            header = {name: header[name] for name in self._names if name in header}
        return self._cls(**header)


_CODECS = {kind: _ItemCodec(contract.item) for kind, contract in CONTRACTS.items()}


def _reader(cls: type[ItemResult]) -> Callable[[dict[str, Any], list[bytes]], ItemResult]:
    """Return the function that reads a result's object in a frame."""
    own = getattr(cls, "from_frame", None)
    if own is not None:
        return cast("Callable[[dict[str, Any], list[bytes]], ItemResult]", own)

    def read(header: dict[str, Any], blobs: list[bytes]) -> ItemResult:
        # Looked up at each call, so that a process builds the validators of what it reads alone.
        found: ItemResult = cls.__pydantic_validator__.validate_python(header, context=blobs)
        return found

    return read


def _reconstructed(header: dict[str, Any], blobs: list[bytes]) -> ItemResult:
    cls = reconstruct.StoredText if header.get("exact", True) else reconstruct.Guess
    return cls.model_validate(header, context=blobs)


def _of_heads(header: dict[str, Any], blobs: list[bytes]) -> ItemResult:
    cls = listing.HeadList if "heads" in header else report.HeadReport
    return cls.model_validate(header, context=blobs)


_RESULTS = {kind: _reader(contract.result) for kind, contract in CONTRACTS.items()}
_RESULTS |= {Kind.RECONSTRUCT: _reconstructed, Kind.HEADS: _of_heads}
