"""Claim train jobs one at a time, run the training, publish its head as a canary, end the job.

A job has its own folder, ``training/JOB`` in the data folder, until it ends:

    request.json   the request
    rows.jsonl     labelled texts (of a collection: reconstructed), questions or pairs, or
    rows.json      labels, documents and the dimension, with
    rows.f32       the vectors
    run/           checkpoints of the training
    result.json    the result of the training

After a kill, the next attempt finds the rows there, and the result if only the publication was
missing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from verso_core import files, registry, telemetry, tracing
from verso_core.errors import (
    CollectionUnknown,
    DiskFull,
    LedgerUnavailable,
    RequestInvalid,
    SpaceMismatch,
    Unavailable,
    VersoError,
    from_body,
)
from verso_core.heads import Portion, Reads
from verso_core.jobs import Queue, Result, Slice, read_slice
from verso_core.jobs.train import Trained, TrainItem, TrainParams
from verso_core.manifest import MANIFEST_NAME, Manifest
from verso_core.registry import Channel
from verso_ledger import Commit, Lease, Ledger
from verso_ledger.ledgers.index import LedgerIndex
from verso_training.service import process, row_export
from verso_training.service.metrics import Metrics
from verso_training.service.process import RESULT_NAME, Stopped

REQUEST_NAME = "request.json"
_RETRY_S = 1.0
_PROGRESS_S = 0.25
_MAX_HISTORY = 500
_OLD_DRAFT_S = 600.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trainer:
    """Runs train jobs.

    Attributes:
        ledger: Of the jobs.
        metrics: The trainer's counters.
        models: Folder with the registry, published into.
        work: Folder of running trainings.
        owner: This trainer's name.
        lease_s: Length of a lease, seconds.
        threads: Cores that a training may use.
        heartbeat_file: Touched at every heartbeat that reached the ledger, also during a training.
        index: Finds the ledger of a collection; None where there is one ledger.
    """

    ledger: Ledger
    metrics: Metrics
    _: KW_ONLY
    models: Path
    work: Path
    owner: str
    lease_s: float
    threads: int
    heartbeat_file: Path | None = None
    index: LedgerIndex | None = None
    _closing: threading.Event = field(default_factory=threading.Event, init=False)

    def close(self) -> None:
        """Stop: the running training is ended and its job released."""
        self._closing.set()

    def heartbeat(self) -> None:
        """Record in the ledger that this trainer is alive."""
        self.ledger.liveness.note_trainer(self.owner)
        if self.heartbeat_file is not None:
            self.heartbeat_file.touch()

    def step(self) -> bool:
        """Run the next job; return whether there was one.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        leases = self.ledger.leases.claim(Queue.TRAIN, owner=self.owner, lease_s=self.lease_s)
        for lease in leases:
            traced = tracing.span("train work", parent=lease.trace, about=_about(lease))
            running = self.metrics.running()
            with telemetry.about(lease.slice_id), running, traced as span:
                with self._held(lease) as lost:
                    outcome = self._run(lease, lost)
                if span is not None:
                    span.set_attribute("verso.outcome", outcome)
            self.metrics.ended(outcome)
        return bool(leases)

    def _run(self, lease: Lease, lost: threading.Event) -> str:
        """Run one job and end it; return the outcome."""
        folder = self.work / lease.job_id
        try:
            result = self._train(lease, read_slice(lease.payload), folder, lost)
        except Stopped:
            if not lost.is_set():
                self.ledger.leases.release(lease)
                return "stopped"  # the rows stay for the next attempt
            _log.info("training stopped: the lease was lost or the job cancelled")
            outcome = "stale"
        except VersoError as error:
            _log.warning("training failed: %s", error.detail, extra={"code": error.code})
            if error.retryable and not isinstance(error, DiskFull):
                self.ledger.leases.retry(lease, error, delay_s=_RETRY_S)
                return "retried"
            # A full disk may have room later, but a second training would fill it again.
            self.ledger.leases.fail(lease, error)
            outcome = "failed"
        except OSError as exc:
            _log.exception("training failed")
            self.ledger.leases.fail(lease, DiskFull(f"{self.work}: {exc.strerror}"))
            outcome = "failed"
        else:
            committed = self.ledger.leases.commit(lease, result.pack(), ok=1, errors=0)
            outcome = "stale" if committed is Commit.STALE else "done"
        shutil.rmtree(folder, ignore_errors=True)
        return outcome

    def _train(
        self, lease: Lease, work: Slice[TrainParams, TrainItem], folder: Path, lost: threading.Event
    ) -> Result[Trained]:
        def stopped() -> bool:
            return lost.is_set() or self._closing.is_set()

        head = work.params.head
        folder.mkdir(parents=True, exist_ok=True)
        with self.metrics.phase("rows"):
            self._prepare(lease, work, folder, stopped=stopped)
        history: list[dict[str, Any]] = []
        reported_s = 0.0

        def report(row: dict[str, Any]) -> None:
            nonlocal reported_s
            history.append(row)
            del history[:-_MAX_HISTORY]
            if time.monotonic() - reported_s >= _PROGRESS_S or row.get("share") == 1:
                reported_s = time.monotonic()
                with contextlib.suppress(LedgerUnavailable):  # the next report repeats it
                    self.ledger.leases.report_progress(lease, row)

        self._remove_drafts(head)
        if not (folder / RESULT_NAME).exists():
            report({"stage": "train", "share": 0.0})
            environment = {"OMP_NUM_THREADS": str(self.threads)}
            with self.metrics.phase("train"):
                process.run(folder, environment=environment, on_progress=report, stopped=stopped)
        result = json.loads((folder / RESULT_NAME).read_bytes())
        if result.get("error") is not None:
            raise from_body(result["error"])
        report({"stage": "publish", "share": 1.0})
        share = work.params.share
        with self.metrics.phase("publish"):
            registry.assign(self.models, Channel.CANARY, result["version"], head=head, share=share)
        _log.info("head %s %s is the canary", head, result["version"])
        return Result([Trained(channel=Channel.CANARY, history=tuple(history), **result)])

    def _prepare(
        self, lease: Lease, work: Slice[TrainParams, TrainItem], folder: Path, *, stopped: Any
    ) -> None:
        """Write the files that the training's process reads; keep those that exist.

        What an earlier attempt has made in the space of another artifact is of no use.
        """
        artifact = registry.resolve(self.models)
        space = Manifest.model_validate_json((artifact / MANIFEST_NAME).read_bytes()).space.id
        if _space_of(folder / REQUEST_NAME) not in (None, space):
            shutil.rmtree(folder)
            folder.mkdir()
        request = {
            "params": work.params.model_dump(mode="json"),
            "artifact": str(artifact.resolve()),
            "space": space,
            "models": str(self.models.resolve()),
            "threads": self.threads,
        }
        files.replace(folder / REQUEST_NAME, json.dumps(request).encode())
        item, source = work.only, work.params.source
        if item.examples is not None:
            files.replace(folder / "rows.jsonl", item.examples)
            return
        if (folder / "rows.json").exists() or (folder / "rows.jsonl").exists():
            return
        name = str(source.collection)
        holder = self.ledger if self.index is None else self.index.ledger_of_collection(name)
        collection = holder.documents.collections().get(name)
        if collection is None or source.created not in (None, collection.created):
            raise CollectionUnknown(f"no collection {name!r} that was there when this was asked")
        texts = _reads_texts(work.params.recipe)
        if collection.space != space and not texts:
            raise SpaceMismatch(
                f"expected a collection of space {space}, got {name} of {collection.space}"
            )
        self.ledger.leases.report_progress(lease, {"stage": "rows", "share": 0.0})
        found = row_export.fetch(
            holder.jobs,
            collection,
            name=name,
            label_key=str(source.label_key),
            chunk=_chunk(work.params.recipe),
            texts=texts,
            limit=source.limit,
            job_id=lease.job_id,
            stopped=stopped,
        )
        if not found.labels:
            raise RequestInvalid(
                f"expected records of {name} with {source.label_key!r} in their metadata, got none"
            )
        if texts:
            files.replace(folder / "rows.jsonl", bytes(found.data))
            return
        files.replace(folder / "rows.f32", bytes(found.data))
        about = {"labels": found.labels, "documents": found.documents, "dim": collection.dim}
        files.replace(folder / "rows.json", json.dumps(about).encode())

    def _remove_drafts(self, head: str) -> None:
        """Remove the drafts that killed trainings left in the models folder."""
        for draft in (self.models / registry.HEADS / head).glob(".draft-*"):
            with contextlib.suppress(OSError):
                if time.time() - draft.stat().st_mtime > _OLD_DRAFT_S or _is_left(draft.name):
                    shutil.rmtree(draft)

    @contextmanager
    def _held(self, lease: Lease) -> Iterator[threading.Event]:
        """Renew a lease; yield an event that is set if it is lost or the job is cancelled."""
        lost, over = threading.Event(), threading.Event()

        def renew() -> None:
            while not over.wait(self.lease_s / 3):
                try:
                    self.heartbeat()
                    if self.ledger.leases.renew([lease], self.lease_s):
                        lost.set()
                except Unavailable as error:
                    _log.warning("heartbeat failed: %s", error.detail)

        thread = threading.Thread(target=renew, name="lease-renewer", daemon=True)
        thread.start()
        try:
            yield lost
        finally:
            over.set()
            thread.join()


def _about(lease: Lease) -> dict[str, tracing.Attribute]:
    return {"verso.job": lease.job_id, "verso.attempt": lease.fence}


def _is_left(draft: str) -> bool:
    """Whether the process of this machine that made a draft has ended."""
    host, _, number = draft.removeprefix(".draft-").rpartition("-")
    own = host in ("", socket.gethostname())
    return own and not (number.isdigit() and Path(f"/proc/{number}").exists())


def _space_of(request: Path) -> str | None:
    """Return the space of an earlier attempt; None if there was none, or it does not say."""
    try:
        space = json.loads(request.read_bytes()).get("space")
    except FileNotFoundError:
        return None
    return None if space is None else str(space)


def _reads_texts(recipe: Mapping[str, Any]) -> bool:
    """Whether a training reads the texts of the records, not only their vectors."""
    table = recipe.get("classify")
    decoder = isinstance(table, dict) and table.get("decoder") is True
    return decoder or recipe.get("reads") == Reads.TOKENS


def _chunk(recipe: Mapping[str, Any]) -> Portion | None:
    """Return the chunks that a recipe names; an unknown name is refused with the recipe."""
    table = recipe.get("classify")
    value = table.get("chunk") if isinstance(table, dict) else None
    return Portion(value) if value in list(Portion) else None
