"""The synchronous client."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

import httpx2

from verso_client import (
    collection_operations,
    contents,
    head_operations,
    joblist,
    operations,
    releases,
)
from verso_client.answers import (
    Clustered,
    CollectionInfo,
    DocumentPage,
    Embedded,
    Found,
    Guess,
    IngestReport,
    Job,
    JobEvent,
    MigrationState,
    RegistryState,
    ScrubState,
    Statistics,
    StoredText,
)
from verso_client.documents import Document
from verso_client.exchange import Call, Pause, Reply, Steps, error_of
from verso_client.head_answers import Answered, Classified, HeadInfo, RankedDocument
from verso_client.head_operations import Question, Subjects
from verso_client.http import DEFAULT_URL, broken, event_call, headers_of, job_event, reply_of
from verso_client.operations import Progress, Query
from verso_client.releases import Training
from verso_client.retries import Retries
from verso_core.errors import VersoError
from verso_core.heads import Portion
from verso_core.jobs import (
    RERANK_SHARE,
    Filter,
    Kind,
    Precision,
    SearchMode,
    SearchSetting,
    Status,
    TextPolicy,
)
from verso_core.jobs.cluster import ClusterRequest
from verso_core.registry import Channel

T = TypeVar("T")


class Client:
    """Speaks to one platform. Safe to share between threads; close it, or use it with ``with``.

    Args:
        url: address of the gateway.
        api_key: key to show, where the platform asks for one.
        timeout_s: seconds without a byte before a request is given up.
        retries: how long to keep trying where trying again can help.
        transport: how requests travel; for an application called in the same process.

    Every method raises classes of :mod:`verso_core.errors`: what the platform answered, or
    ``Unavailable`` where it could not be reached.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout_s: float = 90.0,
        retries: Retries | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._retries = retries or Retries()
        self._http = httpx2.Client(
            base_url=url, headers=headers_of(api_key), timeout=timeout_s, transport=transport
        )

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
        documents: Iterable[Document],
        *,
        collection: str = "default",
        progress: Callable[[Progress], None] | None = None,
    ) -> IngestReport:
        """Take documents in and wait until each is stored; ``progress`` is called on the way."""
        steps = operations.ingest(
            documents, self._retries, collection=collection, progress=progress
        )
        return self._run(steps)

    def submit(self, documents: Iterable[Document], *, collection: str = "default") -> list[Job]:
        """Send documents and give the jobs that will take them in, without waiting for them."""
        return self._run(operations.submit(documents, self._retries, collection=collection))

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
    ) -> Found:
        """Find the records nearest to a text, a vector, or a stored document or record.

        Args:
            rerank: a head that scores pairs; it orders the nearest ``rerank_from`` anew.
            rerank_share: what the head's score counts, in [0, 1]; the search's counts the rest.
        """
        query = Query(
            text=text,
            vector=vector,
            id=id,
            collection=collection,
            limit=limit,
            mode=mode,
            filter=filter,
            with_text=with_text,
            rerank=rerank,
            rerank_from=rerank_from,
            rerank_share=rerank_share,
        )
        return self._run(operations.search(query, self._retries))

    def cluster(self, request: ClusterRequest) -> Clustered:
        """Group the records of a collection, and wait for the groups."""
        return self._run(operations.cluster(request, self._retries))

    def get(self, document: str, *, collection: str = "default") -> StoredText:
        """Read one document or record (``document#n``) back, every byte."""
        return self._run(operations.get(document, self._retries, collection=collection))

    def reconstruct(self, ids: Sequence[str], *, collection: str = "default") -> list[StoredText]:
        """Read up to 1024 documents or records back; each has its own error where it has one."""
        return self._run(operations.reconstruct(ids, self._retries, collection=collection))

    def guess(
        self, vectors: Sequence[Sequence[float]], *, beam: int = 1, max_tokens: int = 127
    ) -> list[Guess]:
        """Guess the texts of bare vectors, greedily or with a beam. A guess is never exact."""
        steps = operations.guess(vectors, self._retries, beam=beam, max_tokens=max_tokens)
        return self._run(steps)

    def embed(self, texts: Sequence[str]) -> list[Embedded]:
        """Turn texts into vectors of unit length."""
        return self._run(operations.embed(texts, self._retries))

    def delete(self, document: str, *, collection: str = "default") -> None:
        """Delete a document."""
        self._run(operations.delete(document, self._retries, collection=collection))

    def job(self, job_id: str) -> Job:
        """Look at a job."""
        return self._run(operations.get_job(job_id, self._retries))

    def wait(self, job_id: str, *, timeout_s: float = math.inf) -> Job:
        """Wait until a job ends, and give it whatever its end was."""
        return self._run(operations.wait(job_id, self._retries, timeout_s=timeout_s))

    def results(self, job_id: str) -> list[dict[str, object]]:
        """Read a job's results as they are, one object for each item that is done, in order."""
        return self._run(operations.results(job_id, self._retries))

    def events(self, job_id: str, *, after: str | None = None) -> Iterator[JobEvent]:
        """Follow a job until it ends; a broken stream is taken up again where it broke."""
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
            # A gateway that stops ends its streams early: ask again, of whoever answers now.
            time.sleep(self._retries.pause_s(failures, asked_s=None))

    def cancel(self, job_id: str) -> Job:
        """Cancel a job; one that has ended stays as it is."""
        return self._run(operations.cancel(job_id, self._retries))

    def jobs(
        self, *, status: Status | None = None, kind: Kind | None = None, limit: int = 50
    ) -> list[Job]:
        """List jobs, the newest first; only of this state and kind, if given."""
        steps = joblist.jobs(self._retries, status=status, kind=kind, limit=limit)
        return self._run(steps)

    def replay_dead(self) -> list[str]:
        """Return all dead jobs a new budget of attempts; gives their ids."""
        return self._run(joblist.replay_dead(self._retries))

    def replay(self, job_id: str) -> Job:
        """Return a dead job a new budget of attempts."""
        return self._run(operations.replay(job_id, self._retries))

    def collections(self) -> list[CollectionInfo]:
        """List the collections by name."""
        return self._run(collection_operations.collections(self._retries))

    def create_collection(
        self,
        name: str,
        *,
        precision: Precision = Precision.FLOAT16,
        text_policy: TextPolicy = TextPolicy.PATCH,
        search: SearchSetting = SearchMode.DENSE,
    ) -> CollectionInfo:
        """Make a collection, or find the one that exists with the same settings."""
        steps = collection_operations.create_collection(
            name, self._retries, precision=precision, text_policy=text_policy, search=search
        )
        return self._run(steps)

    def delete_collection(self, name: str) -> None:
        """Delete a collection and all its documents."""
        self._run(collection_operations.delete_collection(name, self._retries))

    def stats(self, collection: str = "default") -> Statistics:
        """Count what a collection holds."""
        return self._run(collection_operations.stats(collection, self._retries))

    def documents(self, collection: str, *, after: str | None = None) -> DocumentPage:
        """List a collection's documents, in no order; ``after`` is the last page's cursor."""
        return self._run(contents.documents(collection, self._retries, after=after))

    def migrate(self, collection: str, *, to: str = "current") -> MigrationState:
        """Begin a collection's migration to an artifact, or let it go on; it runs by itself."""
        return self._run(collection_operations.migrate(collection, self._retries, to=to))

    def migration(self, collection: str) -> MigrationState:
        """Tell where a collection's migration stands."""
        return self._run(collection_operations.migration(collection, self._retries))

    def end_migration(self, collection: str) -> None:
        """Remove the old side of a migration that is done, or give up one that is not."""
        self._run(collection_operations.end_migration(collection, self._retries))

    def scrub(self, *, now: bool = False) -> ScrubState:
        """Return what the pass over all stored records has found; with ``now`` ask for one
        first.
        """
        return self._run(collection_operations.scrub(self._retries, now=now))

    def train(self, training: Training) -> Job:
        """Ask for a head to be trained and give the job, without waiting for it."""
        return self._run(releases.train(training, self._retries))

    def registry(self) -> RegistryState:
        """Return which models serve, and what each worker took up or refused."""
        return self._run(releases.registry(self._retries))

    def promote(self, head: str | None = None) -> RegistryState:
        """Make a head's canary stable, or without a name the artifact's."""
        return self._run(releases.change("promote", self._retries, head=head))

    def rollback(self, head: str | None = None) -> RegistryState:
        """Take a canary back; without one, go back to what was stable before."""
        return self._run(releases.change("rollback", self._retries, head=head))

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

        With ``accept_error`` a label is withheld where it is not sure enough for at most this share
        of what is given to be wrong. ``chunk`` chooses what of a long text is read; default: what
        each head says.
        """
        steps = head_operations.classify(
            head,
            Subjects(texts, ids, collection),
            self._retries,
            top_k=top_k,
            signals=signals,
            accept_error=accept_error,
            chunk=chunk,
        )
        return self._run(steps)

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
        asked = Question(
            question,
            contexts=contexts,
            collection=collection,
            head=head,
            limit=limit,
            top_k=top_k,
            filter=filter,
        )
        return self._run(head_operations.answer(asked, self._retries))

    def score(self, pairs: Sequence[tuple[str, str]], *, head: str = "pairs") -> list[float]:
        """Score pairs of texts; larger is more alike."""
        return self._run(head_operations.score(pairs, self._retries, head=head))

    def rerank(
        self, query: str, documents: Sequence[str], *, head: str = "pairs", top_n: int | None = None
    ) -> list[RankedDocument]:
        """Order texts by how well they fit a query, best first."""
        steps = head_operations.rerank(query, documents, self._retries, head=head, top_n=top_n)
        return self._run(steps)

    def heads(self) -> list[HeadInfo]:
        """List the heads by name."""
        return self._run(head_operations.heads(self._retries))

    def head(self, name: str) -> HeadInfo:
        """Describe one head."""
        return self._run(head_operations.head(name, self._retries))

    def head_report(self, name: str, *, channel: Channel = Channel.STABLE) -> str:
        """Return the report that a head was published with, Markdown."""
        return self._run(head_operations.report(name, self._retries, channel=channel))

    def ready(self) -> bool:
        """Whether the platform can do work now."""
        return self._run(operations.ready(Retries(patience_s=0)))

    def _run(self, steps: Steps[T]) -> T:
        """Carry steps out, one after another, and give what they end with."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    step = steps.send(None)
                    continue
                try:
                    reply = self._perform(step)
                except VersoError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result

    def _perform(self, call: Call) -> Reply:
        try:
            return reply_of(
                self._http.request(
                    call.method,
                    call.path,
                    params=dict(call.params),
                    content=call.content,
                    headers=dict(call.headers),
                )
            )
        except httpx2.TransportError as error:
            raise broken(error, self._http.base_url) from error

    def _stream(self, call: Call) -> Iterator[JobEvent]:
        try:
            with self._http.sse(call.path, headers=dict(call.headers)) as source:
                if source.response.status_code != 200:
                    source.response.read()
                    raise error_of(reply_of(source.response))
                for event in source:
                    yield job_event(event)
        except httpx2.TransportError as error:
            raise broken(error, self._http.base_url) from error
