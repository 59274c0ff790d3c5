"""The synchronous client. Generated from :mod:`verso_client.async_client`; do not edit."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2

from verso_client import operations
from verso_client.exchange import (
    DEFAULT_URL,
    Call,
    Patience,
    Pause,
    Reply,
    Retries,
    Steps,
    asked_headers,
    asks_environment,
    error_of,
    event_call,
    headers_of,
    job_event,
    repeated,
    reply_of,
    retry_after_s,
    tail_call,
    tail_event,
    unreachable,
)
from verso_client.operations.documents import Document, File, IngestReport, Progress
from verso_client.operations.heads import Training
from verso_client.operations.lines import LinesReport, SourceLines
from verso_core.errors import Unavailable, VersoError
from verso_core.heads import Portion
from verso_core.jobs import (
    RERANK_SHARE,
    CodecPolicy,
    CollectionKind,
    CollectionRequest,
    Filter,
    IndexKind,
    Kind,
    MigrateRequest,
    Precision,
    SearchMode,
    SearchRequest,
    SearchSetting,
    Status,
    TextPolicy,
)
from verso_core.jobs.cluster import Clustered, ClusterRequest, Projected, ProjectRequest
from verso_core.jobs.collections import CollectionInfo, Rollover
from verso_core.jobs.documents import (
    Counted,
    CountRequest,
    DocumentPage,
    Facets,
    FacetsRequest,
    ListRequest,
    Order,
    Updated,
)
from verso_core.jobs.fitting import Fitted
from verso_core.jobs.heads.answer import Answered, AnswerEvent, AnswerRequest
from verso_core.jobs.heads.classify import Classified, ClassifyRequest
from verso_core.jobs.heads.feedback import FeedbackRequest, FeedbackTaken
from verso_core.jobs.heads.listing import HeadInfo
from verso_core.jobs.heads.report import HeadFigures
from verso_core.jobs.heads.rerank import RankedDocument
from verso_core.jobs.ingest import Embedded
from verso_core.jobs.job import Job, JobEvent, LedgerView, StatusView
from verso_core.jobs.logs.lines import LinesRequest
from verso_core.jobs.logs.tail import TailEvent, TailRequest
from verso_core.jobs.logs.views import (
    LabelsAnswer,
    LabelsRequest,
    StatementsAnswer,
    StatementsRequest,
    VolumeAnswer,
    VolumeRequest,
)
from verso_core.jobs.migrate import MigrationState
from verso_core.jobs.moves import MoveView
from verso_core.jobs.reconstruct import Guess, StoredRecords, StoredText
from verso_core.jobs.registry import RegistryState
from verso_core.jobs.scrub import ScrubState
from verso_core.jobs.search import Found
from verso_core.jobs.statistics import Statistics
from verso_core.registry import Channel

T = TypeVar("T")


class Client:
    """A client of one platform, safe to share between threads. Close it, or use it with ``with``.

    Args:
        url: address of the gateway.
        api_key: sent with every request; needed if the platform uses keys.
        timeout_s: seconds without a byte after which a request fails.
        retries: how long to repeat a request whose error is retryable.
        strict: whether searches, counts and views of log collections fail with
            ``PartitionMissing`` where they would leave out a partition that its ledger has lost.
            Otherwise their ``missing_partitions`` name it.
        transport: replaces the network; for an application in the same process.

    Every method raises errors of :mod:`verso_core.errors`: the platform's own, or ``Unavailable``
    if the platform could not be reached.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout_s: float = 90.0,
        retries: Retries | None = None,
        strict: bool = False,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._retries = retries or Retries()
        self._strict = strict
        self._connect = partial(
            httpx2.Client,
            base_url=url,
            headers=headers_of(api_key),
            timeout=timeout_s,
            transport=transport,
            trust_env=asks_environment(url),
        )
        self._connected, self._process = self._connect(), os.getpid()

    @property
    def _http(self) -> httpx2.Client:
        """The HTTP client. A forked process has its own: on shared sockets answers get mixed."""
        if self._process != os.getpid():
            self._connected, self._process = self._connect(), os.getpid()
        return self._connected

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ingest(
        self,
        documents: Iterable[Document | File | None],
        *,
        collection: str = "default",
        progress: Callable[[Progress], None] | None = None,
    ) -> IngestReport:
        """Store documents and wait until each is stored; ``progress`` is called meanwhile.

        Documents are sent in uploads of up to 2,048; None among them sends those before it at once.
        Of a :class:`File` its text is stored.
        """
        steps = operations.documents.ingest(documents, collection=collection, progress=progress)
        return self._run(steps)

    def submit(
        self, documents: Iterable[Document | File | None], *, collection: str = "default"
    ) -> list[Job]:
        """Send documents and return the jobs that will store them, without waiting for the jobs."""
        return self._run(operations.documents.submit(documents, collection=collection))

    def ingest_lines(
        self,
        parts: Iterable[bytes],
        *,
        collection: str,
        labels: Mapping[str, str] | None = None,
        records: bool = False,
        time_format: str = "auto",
        progress: Callable[[int], None] | None = None,
    ) -> LinesReport:
        """Store log lines and wait until all are stored; ``progress`` gets how many are.

        Args:
            parts: bytes of lines, each part with whole lines; no part is changed.
            collection: of kind ``logs``.
            labels: lines with the same labels are one stream, which keeps their order.
            records: parts are NDJSON of log records: ``text`` or ``text_base64``, and ``time``.
            time_format: of times in lines: ``auto``, ``none``, ``iso``, ``syslog``, ``apache``,
                ``epoch``, or a pattern such as ``%d.%m.%Y %H:%M:%S``.
        """
        steps = operations.lines.ingest_lines(
            parts,
            collection=collection,
            labels=labels or {},
            records=records,
            time_format=time_format,
            progress=progress,
        )
        return self._run(steps)

    def ingest_source(
        self,
        read: Callable[[int], SourceLines | None],
        *,
        collection: str,
        labels: Mapping[str, str] | None = None,
        time_format: str = "auto",
        progress: Callable[[int], None] | None = None,
    ) -> LinesReport:
        """Store the lines of a source, such as a file, that were not accepted before.

        Args:
            read: returns the part of the source that begins at a place; None at its end.
            collection: of kind ``logs``.
            labels: of the lines.
            time_format: as for :meth:`ingest_lines`.
            progress: gets how many are stored.
        """
        steps = operations.lines.ingest_source(
            read,
            collection=collection,
            labels=labels or {},
            time_format=time_format,
            progress=progress,
        )
        return self._run(steps)

    def log_volume(self, request: VolumeRequest) -> VolumeAnswer:
        """Count the lines of a log collection by time, and by the values of a label."""
        return self._run(operations.lines.volume(request))

    def log_labels(self, request: LabelsRequest) -> LabelsAnswer:
        """List the labels of the lines of a log collection, or the values of one, with counts."""
        return self._run(operations.lines.labels(request))

    def log_statements(self, request: StatementsRequest) -> StatementsAnswer:
        """List the statements of a log collection: how many lines, and the first and last time."""
        return self._run(operations.lines.statements(request))

    def append_lines(
        self,
        part: SourceLines,
        *,
        collection: str,
        labels: Mapping[str, str] | None = None,
        time_format: str = "auto",
    ) -> int:
        """Have lines of a source accepted, each once, and return how far it is accepted then.

        Args:
            part: the lines, and where in the source they begin and end. If that is not what the
                platform accepts next, nothing is accepted: go on where it says.
            collection: of kind ``logs``.
            labels: of the lines.
            time_format: as for :meth:`ingest_lines`.
        """
        steps = operations.lines.append(
            part, collection=collection, labels=labels or {}, time_format=time_format
        )
        return self._run(steps)

    def lines(self, request: LinesRequest) -> Iterator[bytes]:
        """Yield the lines of a log collection in order, as NDJSON, or as they are with ``raw``.

        What fails is repeated as with other calls, but not once the first bytes have come.
        """
        call = operations.lines.query_call(request)
        patience, sent, asked_s = Patience(self._retries), False, None
        while True:
            try:
                with self._http.stream(
                    call.method, call.path, content=call.content, headers=self._headers(call)
                ) as response:
                    if response.status_code != 200:
                        response.read()
                        asked_s = retry_after_s(reply_of(response))
                        raise error_of(reply_of(response))
                    for data in response.iter_bytes():
                        sent = True
                        yield data
                    return
            except httpx2.RequestError as error:
                failure = unreachable(error, self._http.base_url)
            except VersoError as error:
                failure = error
            if sent:
                raise failure
            time.sleep(patience.pause_s(failure, asked_s=asked_s))

    def tail(self, request: TailRequest, *, after: str | None = None) -> Iterator[TailEvent]:
        """Yield the lines of a log collection as they are accepted, until the caller stops.

        Events are lines, gaps, and places: those of neither. A stream that breaks is resumed where
        it broke, without loss or doubling, or with a gap.

        Args:
            request: which lines.
            after: id of the event to go on after, in place of the request's start.
        """
        failures = 0
        while True:
            try:
                for event in self._stream(tail_call(request, after=after)):
                    failures, after = 0, event.id
                    yield tail_event(event)
            except VersoError as error:
                failures += 1
                if not error.retryable or failures > 5:
                    raise
            # A gateway that stops ends its streams early: another one may answer.
            time.sleep(self._retries.pause_s(failures, asked_s=None))

    def search(
        self,
        text: str | None = None,
        *,
        vector: Sequence[float] | None = None,
        id: str | None = None,  # noqa: A002 - the API's own word
        collection: str = "default",
        limit: int = 10,
        mode: SearchMode | None = None,
        filter: Filter | None = None,  # noqa: A002 - the API's own word
        with_text: bool = True,
        rerank: str | None = None,
        rerank_from: int = 30,
        rerank_share: float = RERANK_SHARE,
        explain: bool = False,
        lines: bool = False,
    ) -> Found:
        """Find the records nearest to a text, a vector, or a stored document or record.

        Args:
            lines: of a log collection: hits are lines, not statements.
            rerank: a head that scores pairs; it reorders the nearest ``rerank_from`` records.
            rerank_share: weight of the head's score, in [0, 1]; the search's score has the rest.
            explain: whether each hit has the parts of its score.
        """
        request = SearchRequest.model_construct(  # the platform checks it
            query=text,
            vector=None if vector is None else [float(value) for value in vector],
            id=id,
            collection=collection,
            limit=limit,
            mode=mode,
            filter=filter,
            with_text=with_text,
            rerank=rerank,
            rerank_from=rerank_from,
            rerank_share=rerank_share,
            explain=explain,
            lines=lines,
        )
        return self._run(operations.search.search(request))

    def cluster(self, request: ClusterRequest) -> Clustered:
        """Group the records of a collection and wait for the groups."""
        return self._run(operations.search.cluster(request))

    def project(self, request: ProjectRequest) -> Projected:
        """Draw a sample of a collection's records as a map and wait for it."""
        return self._run(operations.search.project(request))

    def records(
        self,
        document: str,
        *,
        collection: str = "default",
        vector: bool = False,
        draft: bool = False,
        limit: int = 16,
    ) -> StoredRecords:
        """Describe how a document or record (``document#n``) is stored.

        Args:
            document: its id.
            collection: of the document.
            vector: with the stored vectors.
            draft: with what the decoder guesses from them, and what the patch corrects.
            limit: records described.
        """
        steps = operations.search.records(
            document, collection=collection, vector=vector, draft=draft, limit=limit
        )
        return self._run(steps)

    def status(self) -> StatusView:
        """Return whether the platform is ready, what waits, and what room its workers have."""
        return self._run(operations.heads.status())

    def ledgers(self) -> list[LedgerView]:
        """Return the ledgers of the platform: what each holds, and whether it answers."""
        return self._run(operations.heads.ledgers())

    def drain_ledger(
        self, ledger: str, *, draining: bool = True, move: bool = False
    ) -> list[LedgerView]:
        """Make no new collection on a ledger from now on, or with False make them there again.

        With ``move`` its collections move to the other ledgers as well, one after another.
        """
        return self._run(operations.heads.drain(ledger, draining=draining, move=move))

    def get(self, document: str, *, collection: str = "default") -> StoredText:
        """Return the exact text of a document or record (``document#n``)."""
        return self._run(operations.documents.get(document, collection=collection))

    def reconstruct(self, ids: Sequence[str], *, collection: str = "default") -> list[StoredText]:
        """Return the exact texts of up to 1024 documents or records, each with its own error."""
        return self._run(operations.documents.reconstruct(ids, collection=collection))

    def guess(
        self, vectors: Sequence[Sequence[float]], *, beam: int = 1, max_tokens: int = 127
    ) -> list[Guess]:
        """Guess the texts of bare vectors, greedily or with a beam; a guess is never exact."""
        steps = operations.search.guess(vectors, beam=beam, max_tokens=max_tokens)
        return self._run(steps)

    def embed(self, texts: Sequence[str], *, artifact: str | None = None) -> list[Embedded]:
        """Turn texts into vectors of unit length; ``artifact``: None is the stable one."""
        return self._run(operations.search.embed(texts, artifact=artifact))

    def delete(self, document: str, *, collection: str = "default") -> None:
        """Delete a document."""
        self._run(operations.documents.delete(document, collection=collection))

    def job(self, job_id: str) -> Job:
        """Return the state of a job."""
        return self._run(operations.jobs.get_job(job_id))

    def wait(self, job_id: str, *, timeout_s: float = math.inf) -> Job:
        """Wait until a job ends, in success or not, and return its state."""
        return self._run(operations.jobs.wait(job_id, timeout_s=timeout_s))

    def results(self, job_id: str) -> list[dict[str, object]]:
        """Return a job's results as JSON objects, one for each finished item, in order."""
        return self._run(operations.jobs.results(job_id))

    def events(self, job_id: str, *, after: str | None = None) -> Iterator[JobEvent]:
        """Yield a job's events until it ends; a broken stream is resumed where it broke."""
        failures = 0
        while True:
            try:
                for event in self._stream(event_call(job_id, after=after)):
                    failures = 0
                    if event.name == "end":
                        return
                    after = event.id
                    yield event
            except VersoError as error:
                failures += 1
                if not error.retryable or failures > 5:
                    raise
            # A gateway that stops ends its streams early: another one may answer.
            time.sleep(self._retries.pause_s(failures, asked_s=None))

    def cancel(self, job_id: str) -> Job:
        """Cancel a job; a job that has ended does not change."""
        return self._run(operations.jobs.cancel(job_id))

    def jobs(
        self,
        *,
        status: Status | None = None,
        kind: Kind | None = None,
        reads: bool = False,
        limit: int = 50,
    ) -> list[Job]:
        """List jobs, the newest first, filtered by status and kind if given.

        ``reads``: searches and other reads whose callers wait, too; their kind lists them as well.
        """
        steps = operations.jobs.jobs(status=status, kind=kind, reads=reads, limit=limit)
        return self._run(steps)

    def replay_dead(self) -> list[str]:
        """Replay all dead jobs with a new budget of attempts; return their ids."""
        return self._run(operations.jobs.replay_dead())

    def replay(self, job_id: str) -> Job:
        """Replay a dead job with a new budget of attempts."""
        return self._run(operations.jobs.replay(job_id))

    def collections(self) -> list[CollectionInfo]:
        """List the collections by name."""
        return self._run(operations.collections.collections())

    def create_collection(
        self,
        name: str,
        *,
        kind: CollectionKind | None = None,
        precision: Precision | None = None,
        text_policy: TextPolicy | None = None,
        search: SearchSetting | None = None,
        codec_policy: CodecPolicy | None = None,
        indexes: Mapping[str, IndexKind] | None = None,
        retention_days: float | None = None,
        auto_fit: bool | None = None,
        artifact: str | None = None,
        partitions: int | None = None,
        rollover: Rollover | None = None,
    ) -> CollectionInfo:
        """Create a collection, or return the one that exists with the settings that are given.

        The platform chooses the settings that are None.

        Args:
            indexes: metadata keys to index, so that filters by them need not read every document.
            retention_days: documents whose time is longer ago are deleted.
            auto_fit: whether its codec is fitted to its own texts.
            artifact: name of the one that makes its vectors.
            partitions: its documents are spread over so many, which may be on several ledgers.
            rollover: when a log collection gets a new partition, which may be on another ledger.
        """
        settings = {
            "kind": kind,
            "precision": precision,
            "text_policy": text_policy,
            "search": search,
            "codec_policy": codec_policy,
            "indexes": indexes,
            "retention_days": retention_days,
            "auto_fit": auto_fit,
            "artifact": artifact,
            "partitions": partitions,
            "rollover": rollover,
        }
        given = {setting: value for setting, value in settings.items() if value is not None}
        request = CollectionRequest.model_validate({"name": name, **given})
        return self._run(operations.collections.create_collection(request))

    def change_collection(self, name: str, **change: Any) -> CollectionInfo:
        """Change a collection.

        Args:
            name: its name.
            change: ``indexes`` to add, ``retention_days`` (None keeps all), ``auto_fit``, or the
                ``codec_policy`` of what is written from then on.
        """
        return self._run(operations.collections.change_collection(name, change))

    def fit(self, collection: str) -> Fitted:
        """Fit a collection's codec to its newest texts now, and wait for the end."""
        return self._run(operations.collections.fit(collection))

    def delete_collection(self, name: str) -> None:
        """Delete a collection and all its documents."""
        self._run(operations.collections.delete_collection(name))

    def stats(self, collection: str = "default") -> Statistics:
        """Return counts and sizes of what a collection holds."""
        return self._run(operations.collections.stats(collection))

    def documents(self, collection: str, *, after: str | None = None) -> DocumentPage:
        """List a collection's documents, in no order; ``after`` is the cursor of the last page."""
        return self._run(operations.documents.documents(collection, after=after))

    def query(
        self,
        collection: str = "default",
        *,
        filter: Filter | None = None,  # noqa: A002 - the API's own word
        order: Order = Order.ID,
        descending: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> DocumentPage:
        """List documents that a filter passes, with metadata and time.

        ``after`` is the ``next_cursor`` of the last page.
        """
        request = ListRequest(
            filter=filter, order=order, descending=descending, limit=limit, cursor=after
        )
        return self._run(operations.documents.query(collection, request))

    def count(
        self,
        collection: str = "default",
        *,
        filter: Filter | None = None,  # noqa: A002 - the API's own word
    ) -> Counted:
        """Count the documents that a filter passes."""
        request = CountRequest(filter=filter)
        return self._run(operations.documents.count(collection, request))

    def facets(
        self,
        fields: Sequence[str],
        *,
        collection: str = "default",
        filter: Filter | None = None,  # noqa: A002 - the API's own word
        limit: int = 10,
    ) -> Facets:
        """Count the most frequent values of metadata fields."""
        request = FacetsRequest(fields=list(fields), filter=filter, limit=limit)
        return self._run(operations.documents.facets(collection, request))

    def delete_matching(
        self,
        filter: Filter,  # noqa: A002 - the API's own word
        *,
        collection: str = "default",
    ) -> int:
        """Delete the documents that a filter passes, wait for it, and return how many."""
        return self._run(operations.documents.delete_matching(collection, filter))

    def update(self, document: str, *, collection: str = "default", **change: Any) -> Updated:
        """Change a document's metadata or time; its text stays as it is.

        Args:
            document: its id.
            collection: where it is.
            change: ``metadata`` to set, ``replace`` for all metadata, ``remove`` for keys that go,
                ``time``, and ``written`` to refuse if the document was written since.
        """
        return self._run(operations.documents.update(document, change, collection=collection))

    def migrate(
        self,
        collection: str,
        *,
        to: str = "current",
        precision: Precision | None = None,
        search: SearchSetting | None = None,
        codec_policy: CodecPolicy | None = None,
    ) -> MigrationState:
        """Start a collection's migration, or resume it, without waiting for its end.

        Args:
            collection: its name.
            to: the artifact.
            precision: how its vectors will be stored; None as they are.
            search: what it will keep for searches; None as it is.
            codec_policy: what its codecs will be chosen by; None as they are.
        """
        request = MigrateRequest(
            artifact=to, precision=precision, search=search, codec_policy=codec_policy
        )
        return self._run(operations.collections.migrate(collection, request))

    def migration(self, collection: str) -> MigrationState:
        """Return the state of a collection's migration."""
        return self._run(operations.collections.migration(collection))

    def end_migration(self, collection: str) -> None:
        """Remove the old side of a finished migration, or cancel an unfinished one."""
        self._run(operations.collections.end_migration(collection))

    def move(self, collection: str, ledger: str) -> MoveView:
        """Start a collection's move to another ledger, without waiting for its end."""
        return self._run(operations.collections.move(collection, ledger))

    def move_state(self, collection: str) -> MoveView:
        """Return the state of a collection's newest move to another ledger."""
        return self._run(operations.collections.move_state(collection))

    def end_move(self, collection: str) -> MoveView:
        """Cancel a collection's move, unless it has switched ledgers by now."""
        return self._run(operations.collections.end_move(collection))

    def scrub(self, *, now: bool = False) -> ScrubState:
        """Return what the newest scrub pass has found; with ``now`` request a pass first."""
        return self._run(operations.collections.scrub(now=now))

    def train(self, training: Training) -> Job:
        """Start the training of a head and return its job, without waiting for it."""
        return self._run(operations.heads.train(training))

    def registry(self) -> RegistryState:
        """Return which models serve, and what each worker loaded or refused."""
        return self._run(operations.heads.registry())

    def promote(self, head: str | None = None) -> RegistryState:
        """Make the canary of a head stable; without a name that of the artifact."""
        return self._run(operations.heads.change("promote", head=head))

    def rollback(self, head: str | None = None) -> RegistryState:
        """Withdraw the canary; if there is none, return to the version that was stable before."""
        return self._run(operations.heads.change("rollback", head=head))

    def classify(
        self,
        head: str | Sequence[str],
        *,
        texts: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        collection: str = "default",
        top_k: int = 3,
        signals: bool = False,
        accept_error: float | None = None,
        chunk: Portion | None = None,
    ) -> list[Classified]:
        """Classify texts, or stored documents and records; several heads may be named.

        With ``accept_error`` uncertain labels are withheld, so that at most this share of the
        labels returned is wrong. ``chunk`` chooses which chunks of a long text are read; the
        default is each head's own.
        """
        request = ClassifyRequest.model_construct(  # the platform checks it
            head=head if isinstance(head, str) else list(head),
            texts=None if texts is None else list(texts),
            ids=None if ids is None else list(ids),
            collection=collection,
            top_k=top_k,
            signals=signals,
            accept_error=accept_error,
            chunk=chunk,
        )
        return self._run(operations.heads.classify(request))

    def feedback(
        self,
        head: str,
        labels: Sequence[str],
        *,
        texts: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        collection: str = "default",
    ) -> list[FeedbackTaken]:
        """Send a head the right labels of texts, or of stored documents and records, in order.

        They correct its confidence and the thresholds of ``accept_error``, from 30 labels of a
        source on.
        """
        request = FeedbackRequest.model_construct(  # the platform checks it
            head=head,
            texts=None if texts is None else list(texts),
            ids=None if ids is None else list(ids),
            collection=collection,
            labels=list(labels),
        )
        return self._run(operations.heads.feedback(request))

    def answer(
        self,
        question: str,
        *,
        contexts: Sequence[str] | None = None,
        collection: str | None = None,
        head: str = "qa",
        limit: int = 5,
        top_k: int = 3,
        filter: Filter | None = None,  # noqa: A002 - the API's own word
    ) -> Answered:
        """Answer a question from texts, or from the ``limit`` nearest records of a collection."""
        request = AnswerRequest.model_construct(  # the platform checks it
            question=question,
            contexts=None if contexts is None else list(contexts),
            collection=collection,
            head=head,
            limit=limit,
            top_k=top_k,
            filter=filter,
        )
        return self._run(operations.heads.answer(request))

    def answer_events(
        self,
        question: str,
        *,
        contexts: Sequence[str] | None = None,
        collection: str | None = None,
        head: str = "qa",
        limit: int = 5,
        top_k: int = 3,
        filter: Filter | None = None,  # noqa: A002 - the API's own word
    ) -> Iterator[AnswerEvent]:
        """Yield what an answer is made of as it comes: hits, spans, and at last the answer.

        Hits that come again replace all that came before.

        Raises:
            Unavailable: the stream broke off before its end; nothing is repeated.
        """
        request = AnswerRequest.model_construct(  # the platform checks it
            question=question,
            contexts=None if contexts is None else list(contexts),
            collection=collection,
            head=head,
            limit=limit,
            top_k=top_k,
            filter=filter,
        )
        for event in self._stream(operations.heads.answer_call(request)):
            found = operations.heads.answer_event(event)
            if found is not None:
                yield found
            if found is not None and found.end is not None:
                return
        raise Unavailable("the stream of an answer broke off before its end")

    def score(self, pairs: Sequence[tuple[str, str]], *, head: str = "similarity") -> list[float]:
        """Score pairs of texts; larger is more alike."""
        return self._run(operations.heads.score(pairs, head=head))

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        head: str = "relevance",
        top_n: int | None = None,
    ) -> list[RankedDocument]:
        """Order texts by how well they fit a query, best first."""
        steps = operations.heads.rerank(query, documents, head=head, top_n=top_n)
        return self._run(steps)

    def heads(self) -> list[HeadInfo]:
        """List the heads by name."""
        return self._run(operations.heads.heads())

    def head(self, name: str) -> HeadInfo:
        """Describe one head."""
        return self._run(operations.heads.head(name))

    def head_figures(self, name: str, *, channel: Channel = Channel.STABLE) -> HeadFigures:
        """Return the figures of the report of what a channel serves of a head."""
        return self._run(operations.heads.figures(name, channel=channel))

    def head_report(self, name: str, *, channel: Channel = Channel.STABLE) -> str:
        """Return the report that a head was published with, Markdown."""
        return self._run(operations.heads.report(name, channel=channel))

    def alive(self) -> None:
        """Return if anything answers at the platform's address, without a second attempt.

        Raises:
            Unreachable: nothing does.
        """
        self._run(operations.jobs.alive(), Retries(patience_s=0))

    def ready(self) -> bool:
        """Whether the platform can do work now."""
        return self._run(operations.jobs.ready(), Retries(patience_s=0))

    def _run(self, steps: Steps[T], retries: Retries | None = None) -> T:
        """Perform the calls of an operation, with retries, and return its result."""
        attempts = repeated(steps, retries or self._retries)
        try:
            step = next(attempts)
            while True:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    step = attempts.send(None)
                    continue
                try:
                    reply = self._perform(step)
                except VersoError as error:
                    step = attempts.throw(error)
                else:
                    step = attempts.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result

    def _headers(self, call: Call) -> dict[str, str]:
        return asked_headers(call, strict=self._strict, timeout_s=self._http.timeout.read)

    def _perform(self, call: Call) -> Reply:
        try:
            return reply_of(
                self._http.request(
                    call.method,
                    call.path,
                    params=dict(call.params),
                    content=call.content,
                    headers=self._headers(call),
                )
            )
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise unreachable(error, self._http.base_url) from error

    def _stream(self, call: Call) -> Iterator[JobEvent]:
        try:
            with self._http.sse(
                call.path,
                method=call.method,
                content=call.content,
                params=dict(call.params),
                headers=self._headers(call),
            ) as source:
                if source.response.status_code != 200:
                    source.response.read()
                    raise error_of(reply_of(source.response))
                for event in source:
                    yield job_event(event)
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise unreachable(error, self._http.base_url) from error
