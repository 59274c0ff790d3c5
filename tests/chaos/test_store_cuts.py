"""Power cuts under each store alone (:mod:`tests.chaos.store_cuts`); ``make prove`` makes more."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.disks import SyncedFiles
from tests.chaos.store_cuts import STORES, LedgerStore, cut_power
from tests.chaos.test_power_cut import refuse

from verso_core.errors import JobUnknown

CUTS = int(os.environ.get("STORE_CUTS", "3"))
SEED = int(os.environ.get("STORE_CUTS_SEED", "11"))
_AT_ONCE = 25
"""Cuts of one set of files, which grow and are compared whole after each."""


@contextlib.contextmanager
def disk_in_memory() -> Iterator[SyncedFiles]:
    """Make an empty disk in memory, where a sync takes no time."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or shutil.disk_usage(memory).free < 1 << 30:
        refuse("expected 1 GiB of /dev/shm")
    if (lacks := SyncedFiles.lacks()) is not None:
        refuse(lacks)
    with (
        tempfile.TemporaryDirectory(dir=memory, ignore_cleanup_errors=True) as folder,
        SyncedFiles(Path(folder)) as disk,
    ):
        yield disk


@pytest.mark.slow
@pytest.mark.timeout(900 + 20 * CUTS)
@pytest.mark.parametrize("name", STORES)
def test_what_a_store_answered_is_there_after_a_power_cut(name: str) -> None:
    answered = lost = 0
    for start in range(0, CUTS, _AT_ONCE):
        with disk_in_memory() as disk:
            cuts = min(_AT_ONCE, CUTS - start)
            found = cut_power(STORES[name](disk), disk, cuts=cuts, seed=SEED + start)
            answered, lost = answered + found[0], lost + found[1]
    assert answered >= CUTS
    # what a store answered is synced: a cut seldom finds it between a write and its sync
    assert lost or CUTS < _AT_ONCE, "no cut took anything: this has shown nothing"


@pytest.mark.slow
def test_a_ledger_that_answers_before_it_has_synced_is_noticed() -> None:
    with disk_in_memory() as disk, pytest.raises((AssertionError, JobUnknown)):
        cut_power(LedgerStore(disk, appendfsync="no"), disk, cuts=3, seed=SEED)
