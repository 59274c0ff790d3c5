"""Frames carry any JSON object and any bytes, and nothing else passes for a frame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core import frame
from verso_core.errors import FrameInvalid

_scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()
_headers = st.dictionaries(st.text(), _scalars | st.lists(_scalars), max_size=5)


@given(header=_headers, blobs=st.lists(st.binary(max_size=64), max_size=6))
def test_unpack_undoes_pack(header: dict[str, object], blobs: list[bytes]) -> None:
    assert frame.unpack(frame.pack(header, blobs)) == (header, blobs)


def test_a_lone_surrogate_survives() -> None:
    assert frame.unpack(frame.pack({"text": "\ud800"}))[0] == {"text": "\ud800"}


@given(data=st.binary(max_size=200))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(FrameInvalid):
        frame.unpack(b"\x00" + data)


@given(blobs=st.lists(st.binary(max_size=32), max_size=4), data=st.data())
def test_a_truncated_frame_is_refused(blobs: list[bytes], data: st.DataObject) -> None:
    whole = frame.pack({"a": 1}, blobs)
    size = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(FrameInvalid):
        frame.unpack(whole[:size])


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(FrameInvalid, match="expected"):
        frame.unpack(frame.pack({}) + b"x")


def test_nan_never_enters_a_header() -> None:
    with pytest.raises(ValueError, match="JSON"):
        frame.pack({"score": float("nan")})
