"""Job contracts: the messages between gateway, worker, keeper, trainer and client.

One module a family holds its request, params, item, item result and response: ``ingest`` (embed and
delete, too), ``documents`` (by their metadata), ``search``, ``reconstruct``, ``heads`` (classify,
answer, score, rerank), ``cluster`` (and maps), ``train``, ``fitting`` (codecs fitted to
collections), ``collections``, ``statistics``, ``scrub``, ``migrate`` and ``registry`` (models and
their channels); ``logs`` has those of log collections. ``filters`` says which documents are meant,
``job`` describes jobs, ``models`` has the base classes and what several families share, ``slices``
the table of contracts, from which ``docs/reference/ledger.md`` is generated, and the wire's form.

What a process imports from here is loaded from its own module then: one that knows a few of the
contracts, as the process of the vector store, waits for no others.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verso_core.jobs.collections import Collection, CollectionRequest
    from verso_core.jobs.filters.filter import Filter
    from verso_core.jobs.ingest import (
        EmbedItem,
        EmbedParams,
        EmbedRequest,
        IngestItem,
        IngestParams,
    )
    from verso_core.jobs.job import TASK_WORK, URGENCY, Kind, Queue, Status
    from verso_core.jobs.migrate import MigrateRequest
    from verso_core.jobs.models import (
        BucketRange,
        CodecPolicy,
        CollectionKind,
        Failed,
        IndexKind,
        Item,
        ItemError,
        ItemResult,
        NoItem,
        Params,
        Precision,
        Rejected,
        SearchMode,
        SearchSetting,
        TextPolicy,
    )
    from verso_core.jobs.reconstruct import ReconstructRequest
    from verso_core.jobs.search import RERANK_SHARE, SearchItem, SearchParams, SearchRequest
    from verso_core.jobs.slices import (
        SLICE_BYTES,
        SLICE_COST,
        SLICE_ITEMS,
        AnyResult,
        AnySlice,
        Result,
        Slice,
        SliceSpec,
        cut,
        cut_lines,
        read_slice,
    )
else:
    _NAMES = {
        "collections": ("Collection", "CollectionRequest"),
        "filters.filter": ("Filter",),
        "ingest": ("EmbedItem", "EmbedParams", "EmbedRequest", "IngestItem", "IngestParams"),
        "job": ("TASK_WORK", "URGENCY", "Kind", "Queue", "Status"),
        "migrate": ("MigrateRequest",),
        "models": (
            "BucketRange",
            "CodecPolicy",
            "CollectionKind",
            "Failed",
            "IndexKind",
            "Item",
            "ItemError",
            "ItemResult",
            "NoItem",
            "Params",
            "Precision",
            "Rejected",
            "SearchMode",
            "SearchSetting",
            "TextPolicy",
        ),
        "reconstruct": ("ReconstructRequest",),
        "search": ("RERANK_SHARE", "SearchItem", "SearchParams", "SearchRequest"),
        "slices": (
            "SLICE_BYTES",
            "SLICE_COST",
            "SLICE_ITEMS",
            "AnyResult",
            "AnySlice",
            "Result",
            "Slice",
            "SliceSpec",
            "cut",
            "cut_lines",
            "read_slice",
        ),
    }
    _MODULES = {name: module for module, names in _NAMES.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = found  # asked once
        return found
