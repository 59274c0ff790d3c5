"""Documents in cold storage are read in batches as large as if they were in the ledger."""

from __future__ import annotations

from verso_core.jobs import SLICE_BYTES, SLICE_ITEMS
from verso_core.record import Codec, Entry, Flag, Part, Record
from verso_worker.rules.scrub import batches

ENTRY = Entry(7, 9, (Record(Codec.RAW, 0, b"8 bytes.", b"sum.", b"payload"),), Flag.VERIFIED)


def _cold(size_bytes: int) -> bytes:
    return ENTRY.moved(Part(b"8 bytes!", 0, size_bytes)).pack()


def test_an_entry_in_cold_storage_counts_as_what_it_has_there() -> None:
    rows = [(f"d{n}", _cold(SLICE_BYTES // 2)) for n in range(5)]
    assert [len(batch) for batch in batches(rows)] == [2, 2, 1]
    assert [len(batch) for batch in batches(rows, weight=2)] == [1] * 5


def test_small_ones_are_as_many_as_a_slice_has() -> None:
    rows = [(f"d{n}", _cold(100)) for n in range(SLICE_ITEMS + 1)] + [("damaged", b"\4")]
    assert [len(batch) for batch in batches(rows)] == [SLICE_ITEMS, 2]
