"""Job contracts: the messages between gateway, worker, keeper, trainer and client.

One module a family holds its request, params, item, item result and response: ``ingest`` (ingest,
embed, delete), ``documents`` (by their metadata), ``search``, ``reconstruct`` (and how records are
stored), ``heads`` (classify, answer, score, rerank), ``cluster`` (and maps), ``train`` (and the
rows that it exports), ``fitting`` (codecs fitted to collections), ``collections``, ``scrub``,
``migrate`` and ``registry`` (models and their channels). ``lines`` and
``log_records`` are of logs. ``filters`` says which documents are meant, ``job`` describes jobs
themselves, ``models`` has the base classes and what several families share, ``slices`` the table of
contracts and the form on the wire. The table in
``docs/reference/ledger.md`` is generated from these classes.
"""

from verso_core.jobs.collections import Collection, CollectionRequest
from verso_core.jobs.filters.filter import Filter
from verso_core.jobs.ingest import EmbedItem, EmbedParams, EmbedRequest, IngestItem, IngestParams
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
