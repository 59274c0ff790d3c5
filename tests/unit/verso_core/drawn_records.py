"""Records as property tests draw them."""

from __future__ import annotations

from hypothesis import strategies as st

from verso_core.record import MAX_SLOT, Codec, Record

RECORDS = st.builds(
    Record,
    codec=st.sampled_from(Codec),
    slot=st.integers(0, MAX_SLOT),
    vector_hash=st.binary(min_size=8, max_size=8),
    checksum=st.binary(min_size=4, max_size=4),
    payload=st.binary(max_size=300),
)
