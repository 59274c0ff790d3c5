"""Names of ledgers, and the ids of jobs, which say the ledger that has the job.

A job of the home ledger has an id of 32 hexadecimal digits, as every job had before there could be
more ledgers. The id of another ledger's job ends in a hyphen and the ledger's name.

A request that several ledgers take in is a **group**: a job on each, whose ids differ in their ends
alone, and say all of the group's ledgers before that: ``{digits}_home_b`` and ``{digits}_home_b-b``
are one group. The first ledger leads, and users know the group by the id of its job.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
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


def group_ids(ledgers: Sequence[str]) -> dict[str, str]:
    """Return the ids of a new group's jobs by their ledgers, the one that leads first."""
    return _ids("_".join((uuid.uuid4().hex, *ledgers)), ledgers)


def group_of(job_id: str) -> dict[str, str]:
    """Return the ids of all jobs of a job's group, by their ledgers; of none if it is alone."""
    group = job_id.partition("-")[0]
    return _ids(group, group.split("_")[1:])


def _ids(group: str, ledgers: Sequence[str]) -> dict[str, str]:
    return {one: group if one == HOME else f"{group}-{one}" for one in ledgers}
