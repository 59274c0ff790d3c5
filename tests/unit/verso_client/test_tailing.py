"""Each line of a file is accepted once, whatever becomes of the file and of its tail."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from verso_client.cli.app import app
from verso_client.cli.tailing.complete import CompleteFile
from verso_client.cli.tailing.followed import Pace
from verso_client.cli.tailing.joining import RECORD_BYTES, REQUEST_RECORDS, Joining
from verso_client.cli.tailing.notes import Notes
from verso_client.cli.tailing.tailer import Tailer
from verso_client.operations.lines import SourceLines
from verso_core.errors import QueueFull, RequestInvalid, VersoError

AT_ONCE = Pace(wait_s=0, quiet_s=0, scan_s=0, poll_s=0)


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


@dataclass
class Platform:
    """Accepts parts as the ledger does; ``dies``: what happens at the next one."""

    positions: dict[str, int] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    labels: list[Mapping[str, str]] = field(default_factory=list)
    dies: str = ""

    def send(self, part: SourceLines, labels: Mapping[str, str]) -> int:
        dies, self.dies = self.dies, ""
        if dies == "before":
            raise Killed
        position = self.positions.get(part.source, part.begin)
        if position != part.begin:
            return position
        self.positions[part.source] = part.end
        self.bodies.append(part.body)
        self.labels.append(labels)
        if dies == "after":
            raise Killed
        if dies == "answer":
            raise QueueFull("its answer is lost")
        return part.end

    @property
    def lines(self) -> list[str]:
        return b"".join(self.bodies).decode().splitlines()


def tailer(platform: Platform, folder: Path, *patterns: str, **more: Any) -> tuple[Tailer, Notes]:
    notes = Notes(folder / "notes" / "tail.json")
    made = Tailer(
        [str(folder / pattern) for pattern in patterns],
        platform.send,
        notes,
        host="h",
        labels={"app": "web"},
        say=lambda _: None,
        pace=more.pop("pace", AT_ONCE),
        **more,
    )
    return made, notes


def drained(made: Tailer) -> None:
    for _ in range(3):
        while made.step():
            pass


def test_a_name_that_is_not_utf8_is_a_label_with_escapes(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"bad\xff.log")).write_text("one\n")
    (tmp_path / "good.log").write_text("two\n")
    platform = Platform()
    for _ in range(2):  # the notes are read again
        made, notes = tailer(platform, tmp_path, "*.log")
        drained(made)
        notes.close()
    assert sorted(platform.lines) == ["one", "two"]
    sources = sorted(labels["source"] for labels in platform.labels)
    assert sources == [str(tmp_path / "bad\\xff.log"), str(tmp_path / "good.log")]


class Written:
    """A program that writes numbered lines to a file, and what rotates it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "app.log"
        self.count = 0
        self._rotated = 0

    def write(self, count: int) -> None:
        with self.path.open("a") as file:
            for _ in range(count):
                file.write(f"line {self.count}\n")
                self.count += 1

    def rename(self) -> None:
        if self.path.exists():
            self._rotated += 1
            self.path.rename(self.path.with_name(f"app.log.{self._rotated}"))

    def copy_and_truncate(self) -> None:
        if self.path.exists():
            self._rotated += 1
            shutil.copy(self.path, self.path.with_name(f"app.log.{self._rotated}"))
            os.truncate(self.path, 0)


OPERATIONS = st.lists(
    st.sampled_from(
        ["write", "write", "write", "step", "rename", "copy", "before", "after", "answer", "kill"]
    ),
    max_size=25,
)


@settings(suppress_health_check=list(HealthCheck))
@given(OPERATIONS, st.sampled_from(["app.log", "app.log*"]))
def test_each_line_is_accepted_once(operations: list[str], pattern: str) -> None:
    platform = Platform()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = Written(folder)
        program.write(1)
        made, notes = tailer(platform, folder, pattern)
        for operation in operations:
            match operation:
                case "write":
                    program.write(3)
                case "rename":
                    made.step()  # it is read before: a second's worth is not lost by polling
                    program.rename()
                case "copy":
                    made.step()
                    program.copy_and_truncate()
                    made.step()
                case "before" | "after" | "answer":
                    platform.dies = operation
            try:
                made.step()
                killed = operation == "kill"
            except Killed:
                killed = True
            if killed:
                notes.close()
                made, notes = tailer(platform, folder, pattern)
        platform.dies = ""
        drained(made)
        notes.close()
    assert sorted(platform.lines) == sorted(f"line {n}" for n in range(program.count))


def test_lines_that_a_truncation_left_in_the_copy_are_read_there(tmp_path: Path) -> None:
    platform, program = Platform(), Written(tmp_path)
    made, _ = tailer(platform, tmp_path, "app.log")
    program.write(5)
    drained(made)
    program.write(5)  # not seen before the file is truncated
    program.copy_and_truncate()
    program.write(2)
    drained(made)
    assert sorted(platform.lines) == sorted(f"line {n}" for n in range(12))
    assert {one["source"] for one in platform.labels} == {str(tmp_path / "app.log")}
    assert {one["app"] for one in platform.labels} == {"web"}


def test_a_file_that_was_rotated_while_nothing_followed_is_read_to_its_end(tmp_path: Path) -> None:
    platform, program = Platform(), Written(tmp_path)
    made, notes = tailer(platform, tmp_path, "app.log")
    program.write(5)
    drained(made)
    notes.close()
    program.write(5)
    program.rename()
    program.write(5)
    made, notes = tailer(platform, tmp_path, "app.log")
    drained(made)
    assert sorted(platform.lines) == sorted(f"line {n}" for n in range(15))


def test_another_file_that_got_the_inode_of_a_noted_one_is_not_read(tmp_path: Path) -> None:
    platform, program = Platform(), Written(tmp_path)
    made, notes = tailer(platform, tmp_path, "app.log")
    program.write(5)
    drained(made)
    notes.close()
    private = tmp_path / "private"
    private.write_text("a secret\n" * 20)
    noted = tmp_path / "notes" / "tail.json"
    value = json.loads(noted.read_bytes())
    value["files"][0] |= {"inode": private.stat().st_ino, "at": str(tmp_path / "app.log.1")}
    noted.write_text(json.dumps(value))  # as if the file had been removed while nothing followed it
    program.write(5)
    made, _ = tailer(platform, tmp_path, "app.log")
    drained(made)
    assert platform.lines == [f"line {n}" for n in range(10)]


def test_what_is_written_late_to_a_renamed_file_is_read(tmp_path: Path) -> None:
    platform, path = Platform(), tmp_path / "app.log"
    made, _ = tailer(platform, tmp_path, "app.log")
    path.write_bytes(b"one\n")
    drained(made)
    renamed = path.rename(tmp_path / "other")
    drained(made)  # it was quiet for so long that it is closed
    path.write_bytes(b"new\n")
    for text in (b"two\n", b"three\n"):
        with renamed.open("ab") as file:
            file.write(text)
        drained(made)
        renamed = renamed.rename(renamed.with_name(renamed.name + ".1"))
        drained(made)
    assert sorted(platform.lines) == ["new", "one", "three", "two"]


def test_without_its_notes_a_tail_goes_on_where_the_platform_says(tmp_path: Path) -> None:
    platform, program = Platform(), Written(tmp_path)
    made, notes = tailer(platform, tmp_path, "app.log")
    program.write(5)
    drained(made)
    notes.close()
    (tmp_path / "notes" / "tail.json").unlink()
    program.write(5)
    made, _ = tailer(platform, tmp_path, "app.log")
    drained(made)
    assert platform.lines == [f"line {n}" for n in range(10)]


def test_a_last_line_without_an_end_waits_until_its_file_is_rotated(tmp_path: Path) -> None:
    platform, path = Platform(), tmp_path / "app.log"
    made, _ = tailer(platform, tmp_path, "app.log")
    path.write_bytes(b"one\ntw")
    drained(made)
    assert platform.bodies == [b"one\n"]
    path.rename(tmp_path / "other")
    drained(made)
    assert platform.bodies == [b"one\n", b"tw"]


def test_lines_wait_a_while_for_others_and_go_at_once_when_they_are_many(tmp_path: Path) -> None:
    platform, path = Platform(), tmp_path / "app.log"
    made, _ = tailer(platform, tmp_path, "app.log", pace=Pace(wait_s=600, scan_s=0, poll_s=0))
    path.write_bytes(b"a line\n")
    assert not made.step()
    with path.open("ab") as file:
        file.write(b"x" * 1023 + b"\n" + b"y" * 524_288 + b"\n")
    assert made.step()
    assert sum(map(len, platform.bodies)) == 7 + 1024
    assert not made.step() or sum(map(len, platform.bodies)) == 7 + 1024 + 524_289


def test_files_may_be_followed_from_their_end(tmp_path: Path) -> None:
    platform, program = Platform(), Written(tmp_path)
    program.write(5)
    made, _ = tailer(platform, tmp_path, "*.log", from_end=True)
    drained(made)
    program.write(1)
    (tmp_path / "new.log").write_text("a new file\n")
    drained(made)
    assert sorted(platform.lines) == ["a new file", "line 5"]


def test_a_second_start_leaves_nothing_out(tmp_path: Path) -> None:
    platform, program = Platform(), Written(tmp_path)
    program.write(5)
    made, notes = tailer(platform, tmp_path, "*.log", from_end=True)
    drained(made)
    notes.close()
    program.write(1)
    (tmp_path / "new.log").write_text("a new file\n")
    drained(tailer(platform, tmp_path, "*.log", from_end=True)[0])
    assert sorted(platform.lines) == ["a new file", "line 5"]


def test_a_label_has_the_value_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    class Made(Tailer):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            given.update(more["labels"])
            self.stopped.set()

    monkeypatch.setattr("verso_client.cli.tail.Tailer", Made)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    labels = ["version=1.10", "ready=true", 'shape="a"']
    options = [part for label in labels for part in ("--label", label)]
    notes = str(tmp_path / "notes.json")
    result = CliRunner().invoke(app, ["tail", "none.log", "--notes", notes, *options])
    assert result.exit_code == 0, result.output
    assert [f"{name}={value}" for name, value in given.items()] == labels


def test_two_tails_do_not_share_their_notes(tmp_path: Path) -> None:
    made, _ = tailer(Platform(), tmp_path, "app.log")
    assert made
    with pytest.raises(RequestInvalid, match="another verso tail"):
        tailer(Platform(), tmp_path, "app.log")


def test_what_the_platform_refuses_for_good_ends_the_tail(tmp_path: Path) -> None:
    def refuses(_: SourceLines, __: Mapping[str, str]) -> int:
        raise VersoError("no")

    (tmp_path / "app.log").write_text("a\n")
    notes = Notes(tmp_path / "notes" / "tail.json")
    made = Tailer(
        [str(tmp_path / "app.log")],
        refuses,
        notes,
        host="h",
        labels={},
        say=lambda _: None,
        pace=AT_ONCE,
    )
    with pytest.raises(VersoError):
        made.run()


def test_a_pattern_joins_lines_to_records(tmp_path: Path) -> None:
    platform, path = Platform(), tmp_path / "app.log"
    joining = Joining(r"^\d{4}-")
    made, _ = tailer(platform, tmp_path, "app.log", joining=joining)
    path.write_bytes(
        b"before the first\n"
        b"2026-11-23 10:00:00,5 error\n\tat a\n\xff at b\n"
        b"2026-11-23 10:00:01 ok\n"
    )
    drained(made)
    rows = [json.loads(row) for row in b"\n".join(platform.bodies).splitlines()]
    assert [row.get("text") for row in rows] == ["before the first", None, "2026-11-23 10:00:01 ok"]
    assert rows[1]["text_base64"]
    assert [row.get("time") for row in rows] == [
        None,
        1795428000_500_000_000,
        1795428001_000_000_000,
    ]


def test_a_record_waits_for_its_next_line(tmp_path: Path) -> None:
    platform, path = Platform(), tmp_path / "app.log"
    pace = Pace(wait_s=600, scan_s=0, poll_s=0)
    made, _ = tailer(platform, tmp_path, "app.log", joining=Joining("^E"), pace=pace)
    first = b"E one\n" + b"more\n" * 110_000
    path.write_bytes(first + b"E two\n two")
    assert made.step()
    [row] = [json.loads(row) for row in platform.bodies[0].splitlines()]
    assert row["text"].encode() + b"\n" == first
    assert not made.step()


@given(st.lists(st.sampled_from([b"E a", b"b", b"", b"Ec", b"\xff"]), max_size=12))
def test_records_are_the_lines_again(lines: list[bytes]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    joining = Joining("^E")
    records = list(joining.records(data))
    assert b"".join(one + b"\n" for one in records) == data
    assert all(joining.begins(one) for one in records[1:])
    begin = joining.last_begin(data)
    assert list(joining.records(data[:begin])) + list(joining.records(data[begin:])) == records


def test_a_record_longer_than_a_text_is_cut(tmp_path: Path) -> None:
    data = b"E" + b"x" * (RECORD_BYTES + 10) + b"\n"
    records = list(Joining("^E").records(data))
    assert b"".join(records) + b"\n" == data
    assert [len(one) for one in records] == [RECORD_BYTES, 11]


def test_a_line_longer_than_a_record_ends_the_record_before_it(tmp_path: Path) -> None:
    platform, path = Platform(), tmp_path / "app.log"
    made, _ = tailer(platform, tmp_path, "app.log", joining=Joining("^E", times=None))
    data = b"E one\n" + b"x" * RECORD_BYTES + b"\nE two\n"
    path.write_bytes(data)
    drained(made)
    rows = [json.loads(row)["text"] for body in platform.bodies for row in body.splitlines()]
    assert rows == ["E one", "x" * RECORD_BYTES, "E two"]


def test_a_request_has_no_more_records_than_a_gateway_takes(tmp_path: Path) -> None:
    platform, path = Platform(), tmp_path / "app.log"
    joining = Joining("^E", times=None)
    data = b"E\n x\n" * (REQUEST_RECORDS + 10)
    path.write_bytes(data)
    drained(tailer(platform, tmp_path, "app.log", joining=joining)[0])
    assert [body.count(b"\n") + 1 for body in platform.bodies] == [REQUEST_RECORDS, 10]
    piped = list(joining.bodies([data]))
    assert b"\n".join(piped) == b"\n".join(platform.bodies)
    assert max(body.count(b"\n") + 1 for body in piped) == REQUEST_RECORDS
    with path.open("rb") as file:
        part = CompleteFile(file.fileno(), host="h", joining=joining).read(0)
    assert part is not None
    assert (part.body, part.end) == (platform.bodies[0], 5 * REQUEST_RECORDS)


def test_a_record_ends_at_a_pause_of_its_pipe_and_at_the_length_of_a_text() -> None:
    """A pattern that fits no line keeps no more than one record back."""
    joining = Joining("^E", times=None)
    parts = [b"E one\n", b" more\n", None, b"late\n", None, None]
    assert [json.loads(body)["text"] for body in joining.bodies(parts)] == ["E one\n more", "late"]
    kept, lines = 0, [b"x" * 99_999 + b"\n"] * 100

    def given() -> Iterator[bytes]:
        nonlocal kept
        for line in lines:
            kept += len(line)
            yield line

    found: list[str] = []
    for body in joining.bodies(given()):
        found += [json.loads(row)["text"] for row in body.splitlines()]
        kept -= sum(len(json.loads(row)["text"]) + 1 for row in body.splitlines())
        assert kept <= RECORD_BYTES
    assert found == [one.decode() for one in joining.records(b"".join(lines))]
