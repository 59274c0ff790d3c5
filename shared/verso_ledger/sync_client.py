"""The ledger as workers, trainers and the keeper use it: blocking calls, safe from any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import redis

from verso_core.jobs import Status
from verso_ledger.codec import job_rows, scalars
from verso_ledger.codec.admission import STAGED_FOR_MS, Admission, accepted, accepted_before
from verso_ledger.collections.documents import Documents
from verso_ledger.collections.generations import Generations
from verso_ledger.collections.locations import Locations
from verso_ledger.collections.logs import Logs
from verso_ledger.collections.moves import Moves
from verso_ledger.collections.rolling import Partitions
from verso_ledger.connection import connect, translated
from verso_ledger.epoch import Epoch
from verso_ledger.events.webhooks import WebhookMessages
from verso_ledger.feedback import Feedback
from verso_ledger.keys import key
from verso_ledger.leases import Leases
from verso_ledger.maintenance import Liveness, Maintenance
from verso_ledger.migrations import Migrations
from verso_ledger.models import Accepted, JobRecord, NewJob, Policy
from verso_ledger.names import HOME
from verso_ledger.scripts import Scripts
from verso_ledger.scrub import ScrubCursor
from verso_ledger.trials import Trials


class Jobs:
    """Jobs as their submitters use them."""

    def __init__(self, scripts: Scripts, *, ledger: str = HOME) -> None:
        self._scripts = scripts
        self._redis = scripts.client
        self._ledger = ledger

    def accept(self, job: NewJob) -> Accepted:
        """Accept a job: when this returns it is on disk, and with the replicas asked for.

        Raises:
            IdempotencyConflict: the idempotency key came with another body before.
            QueueFull: the queue holds as much as it may.
            BodyTooLarge: the job is larger than an empty queue may hold.
        """
        admission = Admission.of(job, ledger=self._ledger)
        if admission.staged:
            before = accepted_before(self._scripts.run("stage", admission.reservation))
            if before is not None:
                return before
        for part in admission.parts:
            with translated(), self._redis.pipeline(transaction=False) as pipe:
                for name, payload in part:
                    pipe.set(name, payload, px=STAGED_FOR_MS, nx=True)
                pipe.execute()
        return accepted(self._scripts.run("accept", admission.args))

    def get(self, job_id: str) -> JobRecord:
        """Return what is known of a job.

        Raises:
            JobUnknown: there is no such job, or it has expired.
        """
        with translated():
            fields = cast("Mapping[bytes, bytes]", self._redis.hgetall(key("job", job_id)))
        return job_rows.job_record(job_id, fields)

    def result(self, job_id: str, number: int = 0) -> bytes | None:
        """Return the result frame of one slice of a job; None where there is none (yet)."""
        with translated():
            return cast("bytes | None", self._redis.hget(key("result", job_id), str(number)))

    def cancel(self, job_id: str) -> Status:
        """End a job, unless it has ended; return the status it has now.

        Slices already committed stay done; the commit of a running slice will be refused.

        Raises:
            JobUnknown: there is no such job, or it has expired.
        """
        return job_rows.status_or_unknown(self._scripts.run("cancel", [job_id]), job_id)

    def replay(self, job_id: str) -> Status:
        """Grant the dead slices of a job new attempts; return the status it has now.

        Raises:
            JobUnknown: there is no such job, or it has expired.
        """
        return job_rows.status_or_unknown(self._scripts.run("replay", [job_id]), job_id)

    def known(self, job_ids: Sequence[str]) -> set[str]:
        """Return those of some jobs that have not expired."""
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            for job_id in job_ids:
                pipe.exists(key("job", job_id))
            found = pipe.execute()
        return {job_id for job_id, there in zip(job_ids, found, strict=True) if there}


class Ledger:
    """The durable record of jobs and documents, in parts that share one connection pool.

    Every method of a part is one step of the server and raises LedgerUnavailable when Redis does
    not answer or refuses. A step whose reply was lost may be repeated.

    Args:
        client: the connection.
        policy: the numbers the steps go by.
        replicas: replicas that must have a step before it returns.
        name: of the ledger, among those of a platform.

    Attributes:
        name: of the ledger.
        jobs: accept, look up, cancel and replay jobs.
        leases: claim slices, renew their leases, commit their results.
        documents: collections and the entries of their documents.
        generations: tables that collections have fitted to their texts.
        logs: lines of log collections.
        migrations: of a collection to another artifact.
        moves: of a collection to another ledger.
        partitions: of log collections by time.
        scrub: the cursor and the findings of the scrub.
        feedback: labels that people have checked.
        trials: what workers have counted of canaries.
        webhooks: the outbox of webhook messages.
        maintenance: expired leases, garbage, and counts of what waits.
        liveness: heartbeats of workers and trainers.
        epoch: the ledger's epoch, freezes, and the read-only state.
    """

    def __init__(
        self,
        client: redis.Redis,
        *,
        policy: Policy | None = None,
        replicas: int = 0,
        name: str = HOME,
    ) -> None:
        self._redis = client
        self.name = name
        self._scripts = scripts = Scripts(client, policy, replicas=replicas)
        locations = Locations(scripts)
        self.jobs = Jobs(scripts, ledger=name)
        self.leases = Leases(scripts, locations)
        self.documents = Documents(scripts, locations, ledger=name)
        self.generations = Generations(scripts, self.documents)
        self.logs = Logs(scripts, locations)
        self.migrations = Migrations(scripts, locations)
        self.moves = Moves(scripts, ledger=name)
        self.partitions = Partitions(scripts, self.logs)
        self.scrub = ScrubCursor(scripts)
        self.feedback = Feedback(scripts)
        self.trials = Trials(scripts)
        self.webhooks = WebhookMessages(scripts)
        self.maintenance = Maintenance(scripts)
        self.liveness = Liveness(scripts)
        self.epoch = Epoch(scripts)

    @classmethod
    def from_url(
        cls, url: str, *, policy: Policy | None = None, replicas: int = 0, name: str = HOME
    ) -> Ledger:
        """Connect to the ledger at ``redis://…``, ``unix://…`` or ``redis+sentinel://…``."""
        return cls(connect(url), policy=policy, replicas=replicas, name=name)

    def now(self) -> float:
        """Return the time by the server's clock, Unix seconds: a machine's own may be wrong.

        Raises:
            LedgerUnavailable: Redis does not answer.
        """
        with translated():
            return scalars.server_seconds(self._redis.time())

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()
