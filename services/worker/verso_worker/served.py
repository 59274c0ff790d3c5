"""What a worker serves, and the ledgers for which it serves that."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from verso_core.errors import LedgerUnavailable, RecordCorrupt
from verso_core.jobs import Queue
from verso_core.jobs.collections import CollectionParams
from verso_core.result_files import ResultFiles
from verso_core.settings import HOME_LEDGER
from verso_ledger import Ledger, WorkSubscriber
from verso_worker.jobs.executor import Executor
from verso_worker.jobs.leases import LeaseRenewer
from verso_worker.jobs.sources import Connected, Ledgers, Source
from verso_worker.metrics import Metrics
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.models.canary import ArtifactCanary, Tries
from verso_worker.models.comparison import Comparisons, Margins
from verso_worker.models.fitter import FitProcess
from verso_worker.models.heads import HeadStore
from verso_worker.models.rollout import RegistryWatcher
from verso_worker.records.cache import Cache
from verso_worker.rules.cold.storage import ColdStorage
from verso_worker.rules.ingest import Coded
from verso_worker.rules.logs.collection import LogStore
from verso_worker.rules.logs.kernels import Kernels
from verso_worker.rules.models import ModelOperations
from verso_worker.rules.pipeline import DEFAULT_COLLECTION, Pipeline
from verso_worker.rules.ports.models import Models
from verso_worker.rules.ports.stores import Vectors
from verso_worker.settings import WorkerSettings
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.objects import ObjectStorage
from verso_worker.stores.qdrant.replication import ReplicationReport

_DAY_S = 86_400.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """What this worker serves, and what changes it.

    Attributes:
        settings: of the worker.
        owner: its name in leases.
        ledgers: where its work comes from.
        metrics: its counters.
        artifacts: of the models folder; nothing is loaded yet.
        heads: likewise.
        comparisons: of canaries with the stable versions.
        watcher: follows the registry.
    """

    settings: WorkerSettings
    owner: str
    ledgers: Ledgers
    metrics: Metrics
    artifacts: ArtifactStore
    heads: HeadStore
    comparisons: Comparisons
    watcher: RegistryWatcher

    @classmethod
    def of(
        cls,
        settings: WorkerSettings,
        artifacts: ArtifactStore,
        ledgers: Ledgers,
        metrics: Metrics,
        *,
        owner: str,
        report: ReplicationReport,
    ) -> Served:
        """Return the artifacts and heads of the models folder.

        Args:
            settings: of the worker.
            artifacts: opened when the registry is first read.
            ledgers: the home ledger keeps what is counted of canaries.
            metrics: the worker's counters.
            owner: the worker's name in leases.
            report: what Qdrant keeps otherwise than the settings ask.
        """
        comparisons = Comparisons(
            ledgers.home.trials,
            margins=Margins(
                differ=settings.canary_differ,
                score=settings.canary_score_worse,
                slower=settings.canary_slower,
                false_alarm=settings.canary_false_alarm,
            ),
            share=settings.canary_paired_share,
            on_pair=metrics.canary_pair,
            on_worse=metrics.canary_worse,
        )
        heads = HeadStore(
            settings.models, artifacts, comparisons=comparisons, on_compared=metrics.compared
        )
        watcher = RegistryWatcher(
            settings.models,
            artifacts,
            metrics,
            publish=partial(_publish, settings, ledgers, owner, report),
            heads=heads,
            comparisons=comparisons,
        )
        return cls(settings, owner, ledgers, metrics, artifacts, heads, comparisons, watcher)


@dataclass(frozen=True, slots=True)
class Pipelines:
    """Makes the pipelines of ledgers, which share engine, vector store and caches.

    Attributes:
        served: what they serve.
        vectors: the vector store. The own names of collections of different ledgers differ.
        texts: texts that were read lately, by own name and hash.
        coded: chunks that were ingested lately.
        kernels: those of the codec of lines.
        tries: how often a canary was tried.
    """

    served: Served
    vectors: Vectors
    texts: Cache[bytes]
    coded: Cache[Coded]
    kernels: Kernels
    tries: Tries

    @classmethod
    def of(cls, served: Served, vectors: Vectors) -> Pipelines:
        """Return what makes them, with empty caches."""
        settings, metrics = served.settings, served.metrics
        texts: Cache[bytes] = Cache(settings.text_cache_mib << 20, on_lookup=metrics.text_cache)
        coded: Cache[Coded] = Cache(settings.encode_cache_mib << 20, on_lookup=metrics.encode_cache)
        return cls(served, vectors, texts, coded, Kernels(), Tries())

    def source(self, one: Connected, stack: ExitStack, *, queues: Iterable[Queue]) -> Source:
        """Return a ledger that answers, as the slots use it; its collections are ready then.

        Args:
            one: the ledger.
            stack: ends what is started here.
            queues: those that slots listen to.

        Raises:
            VersoError: a store or an engine is unavailable.
        """
        served, ledger = self.served, one.ledger
        settings = served.settings
        make = self._maker(ledger)
        pipeline = make(served.artifacts)
        if ledger.name == HOME_LEDGER:
            pipeline.create_collection(CollectionParams(name=DEFAULT_COLLECTION))
        _read_again(ledger, pipeline.lacking())
        pipeline.ensure_indexes()
        pipeline.prepare_logs()
        leases = _leases(settings, ledger, stack, owner=served.owner)
        executor = Executor(
            ledger,
            pipeline,
            leases,
            served.metrics,
            verify_delay_s=settings.verify_delay_s,
            raw_text_retention_s=settings.raw_text_retention_s,
            results=ResultFiles(
                settings.results,
                inline_bytes=settings.result_inline_bytes,
                floor_bytes=settings.free_floor_mib << 20,
            ),
            canary=_canary(served, make=make, tries=self.tries),
        )
        subscribers = {queue: WorkSubscriber(one.client, queue) for queue in queues}
        return Source(ledger, executor, leases, subscribers)

    def _maker(self, ledger: Ledger) -> Callable[[Models], Pipeline]:
        """Return what makes the pipeline of some models on a ledger."""
        served, settings = self.served, self.served.settings
        objects = ObjectStorage(
            settings.cold_store,
            ledger=ledger.name,
            floor_bytes=settings.free_floor_mib << 20,
            on_call=served.metrics.object_call,
        )
        days = settings.cold_after_days
        cold = ColdStorage(objects, after_s=None if days is None else days * _DAY_S)
        return partial(
            Pipeline,
            vectors=self.vectors,
            documents=ledger.documents,
            logs=LogStore(ledger.logs, cold),
            migrations=ledger.migrations,
            lexicon=Bm25(),
            registry=ModelOperations(settings.models, served.comparisons.described),
            heads=served.heads,
            feedback=served.ledgers.home.feedback,
            tables=ledger.generations,
            fitter=FitProcess(served.artifacts.folder),
            cache=self.texts,
            coded=self.coded,
            kernels=self.kernels,
        )


def _canary(served: Served, *, make: Callable[[Models], Pipeline], tries: Tries) -> ArtifactCanary:
    watcher = served.watcher
    return ArtifactCanary(
        served.artifacts,
        served.metrics,
        make=make,
        withdraw=watcher.withdraw,
        comparisons=served.comparisons,
        trial=watcher.trial,
        on_tried=watcher.tried,
        tries=tries,
    )


def _publish(
    settings: WorkerSettings,
    ledgers: Ledgers,
    owner: str,
    report: ReplicationReport,
    state: dict[str, Any],
) -> None:
    """Record what this worker serves, and whether its store has room and replicas for vectors."""
    usage, floor = shutil.disk_usage(settings.data), settings.free_floor_mib << 20
    own_vectors = settings.qdrant_url is None
    full = own_vectors and usage.free < floor
    disk = {"bytes_free": usage.free, "bytes_total": usage.total, "bytes_floor": floor}
    own = {"disk_full": full, "disk": disk, "replication": report.lines}
    for one in ledgers.connected:
        try:
            one.ledger.liveness.note_serving(owner, state | own)
        except LedgerUnavailable:
            if not ledgers.several:
                raise


def _read_again(ledger: Ledger, lacking: Sequence[str]) -> None:
    """Request that all documents are read, if a store has lost points: searches do not say so."""
    if lacking:
        said = "the vector store has lost points: all documents are read again first"
        _log.error(said, extra={"collections": lacking, "code": RecordCorrupt.code})
        ledger.scrub.request_recent(0)


def _leases(
    settings: WorkerSettings, ledger: Ledger, stack: ExitStack, *, owner: str
) -> LeaseRenewer:
    leases = LeaseRenewer(
        ledger, owner=owner, lease_s=settings.lease_s, heartbeat_file=settings.heartbeat_file
    )
    leases.beat()
    leases.start()
    stack.callback(leases.stop)
    return leases
