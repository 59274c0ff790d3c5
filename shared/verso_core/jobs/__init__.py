"""Job contracts: what gateway, worker, keeper, trainer and client say to each other.

One module a family holds its request, params, item, item result and response: ``ingest`` (ingest,
embed, delete), ``search``, ``reconstruct``, ``heads`` (classify, answer, score, rerank),
``cluster``, ``train`` and ``admin`` (collections, scrub, migrate, models, rows). ``job`` describes
jobs themselves, ``kinds`` has the words they all use, ``models`` the base classes, ``slices`` the
table of contracts and the form on the wire. The table in ``docs/reference/ledger.md`` is generated
from these classes by :mod:`verso_core.jobs.reference`.
"""

from verso_core.jobs.admin import Collection, CollectionRequest, MigrateRequest
from verso_core.jobs.ingest import EmbedItem, EmbedParams, EmbedRequest, IngestItem, IngestParams
from verso_core.jobs.kinds import (
    RERANK_SHARE,
    TASK_WORK,
    Kind,
    Name,
    Precision,
    Queue,
    SearchMode,
    SearchSetting,
    Status,
    TextPolicy,
)
from verso_core.jobs.models import (
    BucketRange,
    Failed,
    Filter,
    Item,
    ItemError,
    ItemResult,
    NoItem,
    Params,
    Rejected,
)
from verso_core.jobs.reconstruct import ReconstructRequest
from verso_core.jobs.search import SearchItem, SearchParams, SearchRequest
from verso_core.jobs.slices import (
    SLICE_BYTES,
    SLICE_ITEMS,
    AnyResult,
    AnySlice,
    Result,
    Slice,
    SliceSpec,
    cut,
    item_bytes,
    read_slice,
)

__all__ = [
    "RERANK_SHARE",
    "SLICE_BYTES",
    "SLICE_ITEMS",
    "TASK_WORK",
    "AnyResult",
    "AnySlice",
    "BucketRange",
    "Collection",
    "CollectionRequest",
    "EmbedItem",
    "EmbedParams",
    "EmbedRequest",
    "Failed",
    "Filter",
    "IngestItem",
    "IngestParams",
    "Item",
    "ItemError",
    "ItemResult",
    "Kind",
    "MigrateRequest",
    "Name",
    "NoItem",
    "Params",
    "Precision",
    "Queue",
    "ReconstructRequest",
    "Rejected",
    "Result",
    "SearchItem",
    "SearchMode",
    "SearchParams",
    "SearchRequest",
    "SearchSetting",
    "Slice",
    "SliceSpec",
    "Status",
    "TextPolicy",
    "cut",
    "item_bytes",
    "read_slice",
]
