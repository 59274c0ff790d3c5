"""Names of ledgers, and the ids of jobs, which say the ledger that has the job.

A job of the home ledger has an id of 32 hexadecimal digits, as every job had before there could be
more ledgers. The id of another ledger's job ends in a hyphen and the ledger's name.
"""

from __future__ import annotations

import uuid
from typing import Final

from verso_core.settings import HOME_LEDGER

HOME: Final = HOME_LEDGER
"""Name of the ledger that a platform has before it has others."""


def new_job_id(ledger: str) -> str:
    """Return an id for a new job of a ledger."""
    made = uuid.uuid4().hex
    return made if ledger == HOME else f"{made}-{ledger}"


def ledger_of(job_id: str) -> str:
    """Return the name of the ledger that has the job of an id; it may be no ledger's."""
    return job_id.partition("-")[2] or HOME
