"""Texts of a collection come in the order in which they were written, the newest ones only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from verso_client import DocumentInfo, DocumentPage, StoredText
from verso_core.errors import CollectionUnknown, EngineUnavailable, RequestInvalid
from verso_core.jobs import CollectionKind, Precision, TextPolicy
from verso_core.jobs.collections import CollectionInfo
from verso_core.jobs.logs.lines import LinesRequest
from verso_core.jobs.models import ItemError
from verso_standalone.fitting import MOST_BYTES, texts_of


class Platform:
    """A collection in memory, listed two documents a page."""

    def __init__(self, texts: Sequence[StoredText], rows: Sequence[DocumentInfo]) -> None:
        self._texts = {text.id: text for text in texts}
        self._rows = rows

    def collections(self) -> list[CollectionInfo]:
        return [
            CollectionInfo(
                name=name,
                precision=Precision.INT8,
                text_policy=TextPolicy.PATCH,
                space="s",
                dim=4,
                kind=kind,
            )
            for name, kind in (("logs", CollectionKind.DOCUMENTS), ("lines", CollectionKind.LOGS))
        ]

    def documents(self, collection: str, *, after: str | None = None) -> DocumentPage:
        start = int(after or 0)
        more = start + 2 < len(self._rows)
        return DocumentPage(
            documents=tuple(self._rows[start : start + 2]),
            next_cursor=str(start + 2) if more else None,
        )

    def reconstruct(self, ids: Sequence[str], *, collection: str = "default") -> list[StoredText]:
        return [self._texts[name] for name in ids]

    def lines(self, request: LinesRequest) -> Iterator[bytes]:
        assert (request.collection, request.raw, request.limit) == ("lines", True, 0)
        yield b"third\nsec"
        yield b"ond\nfirst\n"


def row(name: str, written: int, size: int = 1) -> DocumentInfo:
    return DocumentInfo(id=name, written=written, bytes=size)


def text(name: str, time: float | None = None) -> StoredText:
    return StoredText(id=name, text=name, time=time)


def test_the_newest_lines_of_a_log_collection_come_oldest_first() -> None:
    assert texts_of(Platform([], []), "lines", space="s") == [b"first", b"second", b"third"]


def test_later_jobs_come_later_and_numbers_in_ids_count_as_numbers() -> None:
    rows = [row("b:10", 1), row("c", 3), row("b:9", 1), row("a:1", 2), row("7", 1)]
    platform = Platform([text(one.id) for one in rows], rows)
    assert texts_of(platform, "logs", space="s") == [b"7", b"b:9", b"b:10", b"a:1", b"c"]


def test_times_go_before_where_every_text_has_one() -> None:
    rows = [row("a", 1), row("b", 2), row("c", 3)]
    platform = Platform([text("a", 9.0), text("b", 5.0), text("c", 7.0)], rows)
    assert texts_of(platform, "logs", space="s") == [b"b", b"c", b"a"]
    platform = Platform([text("a", 9.0), text("b"), text("c", 7.0)], rows)
    assert texts_of(platform, "logs", space="s") == [b"a", b"b", b"c"]


def test_no_more_than_the_newest_are_read() -> None:
    rows = [row("old", 1, 1), row("a", 2, MOST_BYTES - 1), row("b", 3, 1)]
    assert texts_of(Platform([text("a"), text("b")], rows), "logs", space="s") == [b"a", b"b"]


def test_a_damaged_text_is_left_out_and_one_that_waits_is_an_error() -> None:
    def failed(code: str, *, retryable: bool) -> StoredText:
        return StoredText(id="b", error=ItemError(code=code, detail="told", retryable=retryable))

    rows = [row("a", 1), row("b", 2)]
    damaged = Platform([text("a"), failed("record_corrupt", retryable=False)], rows)
    assert texts_of(damaged, "logs", space="s") == [b"a"]
    away = Platform([text("a"), failed("engine_unavailable", retryable=True)], rows)
    with pytest.raises(EngineUnavailable):
        texts_of(away, "logs", space="s")


def test_another_space_and_an_unknown_collection_are_refused() -> None:
    with pytest.raises(RequestInvalid, match="space"):
        texts_of(Platform([], []), "logs", space="t")
    with pytest.raises(CollectionUnknown):
        texts_of(Platform([], []), "nope", space="s")
