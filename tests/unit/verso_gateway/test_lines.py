"""Lines of a body become slices that hold every byte of it."""

from __future__ import annotations

import zstandard
from hypothesis import given
from hypothesis import strategies as st

from verso_core.jobs.logs.lines import LinesItem
from verso_core.jobs.slices import read_slice
from verso_gateway.bodies.lines import LineUpload, TimesRead, slices_of

BODIES = st.lists(st.sampled_from([b"a\n", b"\n", b"\x00\xff", b"b" * 900_000, b"c\n" * 9]))


@given(BODIES.filter(any))
def test_the_slices_of_a_body_are_the_body(chunks: list[bytes]) -> None:
    upload = LineUpload()
    for chunk in chunks:
        upload.take(chunk)
    specs = slices_of(
        upload.finish(),
        collection="logs", uid="u", stream=3, first=40, labels={"host": "a"}, times=TimesRead(),
    )  # fmt: skip
    texts, following = [], 40
    for spec in specs:
        item = read_slice(spec.payload).only
        assert isinstance(item, LinesItem)
        text = zstandard.decompress(item.text)
        assert (item.first, item.size) == (following, len(text))
        assert item.count == text.count(b"\n") + (not text.endswith(b"\n"))
        assert spec.cost is not None
        assert spec.cost >= len(text) // 64
        following += item.count
        texts.append(text)
    assert b"".join(texts) == b"".join(chunks)
