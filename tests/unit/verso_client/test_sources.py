"""Files become documents, byte for byte."""

from __future__ import annotations

import io
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest

from verso_client.cli import ingest, sources
from verso_client.cli.sources import Format, Reading, guess_format, read, scalar
from verso_client.cli.tailing.joining import Joining
from verso_client.operations.documents import Document
from verso_core.errors import RequestInvalid, TextTooLarge

HOST = socket.gethostname()


def documents(data: bytes, how: Format, name: str | None = "f") -> list[Document]:
    reading = Reading(how=how, name=name, metadata={"host": "a"})
    return [one for one in read(io.BytesIO(data), "f", reading) if isinstance(one, Document)]


def of_file(path: Path, **chosen: object) -> dict[str, bytes | str]:
    """Return the texts of a file by their ids."""
    with path.open("rb") as stream:
        found = list(read(stream, str(path), Reading(**chosen)))  # type: ignore[arg-type]
    return {one.id: one.text for one in found if isinstance(one, Document) and one.id is not None}


def test_lines_keep_every_byte_but_the_line_feed() -> None:
    found = documents(b"one\r\n\n\xff\xfe two\nlast", Format.LINES)
    assert [d.text for d in found] == [b"one\r", b"\xff\xfe two", b"last"]
    assert [str(d.id).partition("-")[0] for d in found] == ["f:0", "f:6", "f:13"]


def test_a_whole_file_is_one_document() -> None:
    [document] = documents(b"one\r\n\x00two\n", Format.FILES)
    assert document.text == b"one\r\n\x00two\n"
    assert document.metadata == {"host": "a"}


def test_json_lines_bring_their_own_fields() -> None:
    [first, second] = documents(
        b'{"text": "a", "id": "x", "metadata": {"host": "b"}, "time": 3}\n\n'
        b'{"text_base64": "/w=="}\n',
        Format.JSONL,
    )
    assert (first.text, first.id, first.metadata, first.time) == ("a", "x", {"host": "b"}, 3)
    assert (second.text, second.metadata) == (b"\xff", {"host": "a"})
    assert str(second.id).startswith("f:64-")


def test_a_file_read_again_has_the_same_ids_and_one_that_grew_more_of_them(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\none\n")
    first = of_file(path)
    assert len(first) == 2
    assert all(name.startswith(f"{HOST}:") for name in first)
    assert of_file(path) == first
    with path.open("ab") as file:
        file.write(b"two\n")
    assert first.items() < of_file(path).items()


def test_a_rotated_file_and_a_truncated_one_are_other_files(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"monday\nsame\n")
    monday = of_file(path)
    path.rename(tmp_path / "a.log.1")
    path.write_bytes(b"tuesday\nsame\n")
    tuesday = of_file(path)
    path.write_bytes(b"friday\nsame\n")  # truncated in place: the same inode
    friday = of_file(path)
    assert len(monday.keys() | tuesday.keys() | friday.keys()) == 6


def test_what_is_written_over_a_line_is_another_document(tmp_path: Path) -> None:
    """Also where a file that is truncated in place always begins with the same line."""
    path = tmp_path / "a.log"
    path.write_bytes(b"# header\nmonday 1\n")
    before = of_file(path)
    path.write_bytes(b"# header\nmonday 2\n")
    assert len(before.keys() | of_file(path).keys()) == 3


def test_another_host_has_other_ids(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    assert of_file(path, name="b").keys().isdisjoint(of_file(path, name="c"))
    assert next(iter(of_file(path, name="b"))).startswith("b:")


def test_a_whole_file_is_replaced_only_where_that_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"one")
    [first] = of_file(path)
    assert [first] == [*of_file(path)]
    path.write_bytes(b"two")
    [second] = of_file(path)
    assert first != second
    assert second.startswith(f"{path}@")
    assert [*of_file(path, replace=True)] == [str(path)]
    assert [*of_file(path, replace=True, name="manual")] == ["manual"]


def test_a_pipe_without_a_name_is_new_each_time_and_with_one_the_same() -> None:
    data = b"one\ntwo\n"
    unnamed = [one.id for _ in range(2) for one in documents(data, Format.LINES, name=None)]
    assert len(set(unnamed)) == 4
    named = [one.id for _ in range(2) for one in documents(data, Format.LINES, name="boot")]
    assert len(set(named)) == 2


def test_the_lines_of_a_pipe_are_sent_while_it_is_quiet() -> None:
    """None stands where what came before is to be sent; a line that has no end yet waits."""
    reader, writer = os.pipe()
    sent = threading.Event()

    def write() -> None:
        os.write(writer, b"one\ntwo\nthr")
        assert sent.wait(60)
        os.write(writer, b"ee\nend")
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(reader, "rb") as stream:
        found = []
        for one in read(stream, "-", Reading(name="boot")):
            found.append(one.text if isinstance(one, Document) else None)
            if found[-1] is None:
                sent.set()
    thread.join()
    assert found[:3] == [b"one", b"two", None]
    assert [one for one in found[3:] if one is not None] == [b"three", b"end"]


@contextmanager
def pipe_of(lines: Iterable[bytes], *, pause_s: float) -> Iterator[IO[bytes]]:
    """Yield a pipe that a program writes lines to, with a pause after each."""
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb", buffering=0) as stream:
            for line in lines:
                stream.write(line)
                time.sleep(pause_s)

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(reader, "rb") as stream:
        yield stream
    thread.join()


def test_a_record_of_a_pipe_that_never_pauses_stays_whole() -> None:
    """What is complete is sent meanwhile."""
    lines = [b"E one\n", b"E two\n", *[b" more\n"] * 15, b"E three\n"]
    reading = Reading(name="boot", joining=Joining("^E"))
    with pipe_of(lines, pause_s=0.1) as stream:
        found = [
            one.text if isinstance(one, Document) else None for one in read(stream, "-", reading)
        ]
    records = [b"E one", b"E two\n" + b" more\n" * 14 + b" more", b"E three"]
    assert [one for one in found if one is not None] == records
    assert found.index(None) < found.index(records[1])


def test_a_record_of_a_pipe_ends_where_the_pipe_pauses() -> None:
    reading = Reading(name="boot", joining=Joining("^E"))
    with pipe_of([b"E one\n more\n", b"late\n"], pause_s=3) as stream:
        found = [one.text for one in read(stream, "-", reading) if isinstance(one, Document)]
    assert found == [b"E one\n more", b"late"]


def test_lines_have_the_times_that_stand_in_them(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"2026-11-22T00:00:10Z up\n  at main\n")
    assert [one.time for one in documents(path.read_bytes(), Format.LINES)] == [1795305610.0] * 2
    [one, _] = read(io.BytesIO(path.read_bytes()), "a.log", Reading(times=None))
    assert one is not None
    assert one.time is None


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]", b'{"txt": "a"}', b'{"text": 3}', b'{"text": "a", "text_base64": "/w=="}',
     b'{"text_base64": "?"}', b'{"text": "a", "metadata": []}'],
)  # fmt: skip
def test_a_line_that_is_no_document_names_its_place(line: bytes) -> None:
    with pytest.raises(RequestInvalid, match=r"^f:1: "):
        documents(line, Format.JSONL)


@pytest.mark.parametrize(
    ("name", "how"),
    [("-", Format.LINES), ("a.log", Format.LINES), ("a.JSONL", Format.JSONL),
     ("a.ndjson", Format.JSONL), ("a.md", Format.FILES), ("README", Format.FILES)],
)  # fmt: skip
def test_the_format_goes_by_the_name(name: str, how: Format) -> None:
    assert guess_format(name) is how


def test_json_that_is_nested_too_deeply_is_an_invalid_line() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    stream = io.BytesIO(b'{"text": "a", "metadata": {"a": ' + deep + b"}}\n")
    with pytest.raises(RequestInvalid, match="malformed JSON"):
        list(read(stream, "a.jsonl", Reading(how=Format.JSONL)))
    assert scalar(deep.decode()) == deep.decode()


@pytest.mark.parametrize("given", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_value_that_json_cannot_carry_stays_a_string(given: str) -> None:
    assert scalar(given) == given


@pytest.mark.parametrize("kind", ["documents", "lines"])
def test_a_line_of_a_pipe_that_does_not_end_is_an_error(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "LONGEST_LINE_BYTES", 100_000)
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as pipe:

        def write() -> None:
            with suppress(BrokenPipeError), os.fdopen(write_end, "wb") as writer:
                writer.write(b"a line\n" + b"x" * 5_000_000)

        thread = threading.Thread(target=write)
        thread.start()
        parts = ingest._arriving(pipe) if kind == "lines" else sources._arriving(pipe.fileno())
        got: list[bytes | None] = []
        with pytest.raises(TextTooLarge):
            got.extend(parts)
        assert got[0] == b"a line\n"
        assert not any(got[1:])
    thread.join()
