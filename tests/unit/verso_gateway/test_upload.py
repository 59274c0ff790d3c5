"""Facts about uploads cut into slices while they arrive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire import Item, read_slice

from verso_core.errors import BodyTooLarge, DocumentsRefused, RequestInvalid
from verso_core.jobs import SLICE_BYTES, SLICE_ITEMS, SliceSpec
from verso_gateway.bodies import upload
from verso_gateway.bodies.upload import Upload


async def _chunks(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def _upload(data: bytes, *, size: int = 1000) -> list[SliceSpec]:
    taken = Upload("default", limit=1000)
    asyncio.run(taken.read_lines(_chunks(data, size)))
    return taken.finish()


def _items(specs: list[SliceSpec]) -> list[Item]:
    return [item for spec in specs for item in read_slice(spec.payload).items]


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=300),
    size=st.integers(1, 5000),
)
def test_lines_come_out_in_order_however_they_arrive(texts: list[str], size: int) -> None:
    data = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)
    specs = _upload(data, size=size)
    assert [item.blob for item in _items(specs)] == [text.encode() for text in texts]
    assert all(spec.items <= SLICE_ITEMS for spec in specs)


def test_json_documents_and_lines_give_the_same_slices() -> None:
    documents = [{"id": str(n), "text": "x" * (n * 37 % 5000)} for n in range(400)]
    by_body = Upload("default", limit=1000)
    asyncio.run(by_body.read_documents(list(documents)))
    lines = b"\n".join(json.dumps(one).encode() for one in documents)
    assert by_body.finish() == _upload(lines)


def test_too_many_lines_are_refused_before_one_is_read() -> None:
    taken = Upload("default", limit=1000)
    with pytest.raises(BodyTooLarge, match="<= 1000 documents"):
        asyncio.run(taken.read_lines(_chunks(b"1\n" * 5000, 64)))
    assert taken.intaken.refused == 0


def test_lines_are_read_that_are_further_behind_than_lines_are_counted_ahead() -> None:
    line = json.dumps({"text": "x" * 100_000}).encode() + b"\n"
    count = 2 * upload.AHEAD_BYTES // len(line)
    assert len(_items(_upload(line * count, size=1 << 16))) == count
    with pytest.raises(BodyTooLarge):  # slices that were cut already are dropped
        _upload(line * count + b"\n" * 1001, size=1 << 16)


def test_slices_are_full_and_bounded() -> None:
    specs = _upload(b'{"text": "a"}\n' * 1000)
    assert [spec.items for spec in specs] == [SLICE_ITEMS] * 15 + [40]
    large = json.dumps({"text": "a" * (SLICE_BYTES // 2 + 1)}).encode() + b"\n"
    assert [spec.items for spec in _upload(large * 7)] == [1] * 7


def test_a_bad_line_fails_alone_with_its_number() -> None:
    items = _items(_upload(b'{"text": "a"}\r\n\n{"text": \n{"text": "b"}\n[1]\n{"text": "c"}'))
    assert [item.blob for item in items] == [b"a", None, b"b", None, b"c"]
    details = [item.rejected["detail"] for item in items if item.rejected]
    assert details[0].startswith("line 3: malformed JSON")
    assert details[1].startswith("line 5: expected an object")


def test_a_line_of_too_many_values_fails_alone_before_it_is_parsed() -> None:
    crowded = b'{"text": "a", "metadata": {"a": [' + b"1," * 9000 + b"1]}}\n"
    items = _items(_upload(b'{"text": "' + b"," * 9000 + b'"}\n' + crowded))
    assert [item.blob for item in items] == [b"," * 9000, None]
    assert items[1].rejected is not None
    assert items[1].rejected["detail"] == "line 2: expected <= 8192 values in a line"


def test_an_endless_line_is_refused_without_being_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "LINE_BYTES", 100)
    long = b'{"text": "' + b"x" * 200 + b'"}\n'
    items = _items(_upload(long + b'{"text": "b"}\n' + long, size=7))
    assert [item.blob for item in items] == [None, b"b", None]
    assert items[0].rejected is not None
    assert items[0].rejected["code"] == "text_too_large"


def test_a_line_number_counts_refused_and_empty_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "LINE_BYTES", 15)
    good = b'{"text":"a"}\n'
    items = _items(_upload(good + b"x" * 20 + b"\n\n" + b"y" * 20, size=3))
    assert [item.rejected["detail"][:7] for item in items if item.rejected] == [
        "line 2:",
        "line 4:",
    ]


def test_an_upload_of_refused_documents_alone_says_why() -> None:
    with pytest.raises(
        DocumentsRefused, match=r"all 2 documents.*line 1: expected UTF-8"
    ) as caught:
        _upload(b'\x1f\x8b\x08\n{"text": "a", "host": "b"}\n')
    told = caught.value.intaken
    assert (told["accepted"], told["refused"]) == (0, 2)
    assert "'host'" in told["refusals"][1]["error"]["detail"]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"  \n"])
def test_an_upload_without_documents_is_refused(data: bytes) -> None:
    with pytest.raises(RequestInvalid):
        _upload(data)


async def test_a_request_has_a_bounded_number_of_documents() -> None:
    line = b'{"text": "a"}'

    async def chunks(count: int) -> AsyncIterator[bytes]:
        yield b"\n".join([line] * count)

    fits = Upload("default", limit=3000)
    await fits.read_lines(chunks(3000))
    assert sum(part.items for part in fits.finish()) == 3000
    for reading in (
        Upload("default", limit=3000).read_lines(chunks(3001)),
        Upload("default", limit=3).read_documents([{"text": "a"}] * 4),
    ):
        with pytest.raises(BodyTooLarge, match="send them in several"):
            await reading
