"""The ledger: the durable record of jobs and documents, kept in Redis or Valkey.

A job is accepted in slices. A slice is claimed under a lease with a **fence**, a number that grows
with every claim. It is executed, and committed in one step that checks the fence, so exactly one of
any number of attempts counts. Correctness does not depend on time: a lease that ends early only
costs work.

    accept -> claim -> commit ----------------------------------> the job ends with its last slice
                |         \\-> (ingest) verify: claim -> verified -> raw texts dropped
                |-> retry / release -> ready again
                |-> fail -> failed, or a dead letter where a text was promised to be kept
                `-> (lease runs out) reap -> ready again, the third time a dead letter -> replay

Every step is one Lua script that checks everything and then writes, uses the server's clock, and
does nothing when it is run again: a client that lost the reply may repeat the step. Every method
that reads or writes raises LedgerUnavailable when Redis does not answer or refuses.

The gateway uses ``AsyncLedger``, and ``Ledgers`` for all those of a platform; workers, trainers and
the keeper use ``Ledger``, whose parts are its attributes. The keys are listed in ``keys``, and no
other package knows them.
"""

from verso_ledger.async_client import AsyncLedger
from verso_ledger.durability import Server, await_ledger, check_durability
from verso_ledger.events.webhooks import Message, Webhook
from verso_ledger.events.work_signal import WorkSubscriber
from verso_ledger.ledgers.router import Ledgers
from verso_ledger.models import (
    Accepted,
    Backlog,
    Commit,
    Counting,
    DeadLetter,
    Depth,
    DocumentDelete,
    DocumentWrite,
    Event,
    Finished,
    Health,
    JobOutcome,
    JobRecord,
    Lease,
    Limits,
    NewJob,
    Phase,
    Policy,
    SliceFailures,
)
from verso_ledger.pages import DocumentRow
from verso_ledger.scrub import Damage, Move, Recent, Scrub, ScrubStage, Walked
from verso_ledger.sync_client import Ledger
