"""Lines that hold some bytes, and lines put together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_codecs.logs import lines
from verso_codecs.logs.parsing import split

PAYLOADS = st.lists(st.sampled_from([b"a", b"b", b"ab", b"\n", b"\xff"]), max_size=20).map(b"".join)


@given(PAYLOADS, st.sampled_from([b"", b"a", b"ab", b"aab", b"\xff"]))
def test_lines_that_hold_the_bytes_are_found(payload: bytes, needle: bytes) -> None:
    found = lines.find(split(payload), needle).tolist()
    assert found == [needle in line for line in payload.split(b"\n")[: len(found)]]


@given(PAYLOADS, st.randoms())
def test_lines_are_taken_in_order(payload: bytes, rng: np.random.Generator) -> None:
    texts = payload.split(b"\n")[: split(payload).begins.size]
    chosen = [rng.randrange(len(texts)) for _ in range(5 if texts else 0)]  # type: ignore[attr-defined]
    taken = lines.take(split(payload), np.array(chosen, np.int64))
    assert taken == b"".join(texts[number] + b"\n" for number in chosen)
    with pytest.raises(IndexError):
        lines.take(split(payload), np.array([len(texts)]))
