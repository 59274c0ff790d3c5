"""Log collections over HTTP and on the command line: lines in, lines out, statements found."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx2
import pytest
from tests.e2e.conftest import Platform, command_line

from verso_client import Client, Document
from verso_core.errors import DocumentUnknown, KindUnsupported
from verso_core.jobs import CollectionKind, Filter, TextPolicy
from verso_core.jobs.cluster import ClusterRequest
from verso_core.jobs.documents import Order
from verso_core.jobs.logs.lines import LinesRequest

NAME = "web-logs"
LINES = 3000


def text(host: str, count: int = LINES) -> bytes:
    rows = [
        f"2026-01-01T00:{n // 60 % 60:02}:{n % 60:02}Z {host} "
        + (
            f"sshd[{n}]: Failed password for user{n % 5}"
            if n % 3
            else f"disk: cannot write block {n * 977} of volume v{n % 4}"
        )
        for n in range(count)
    ]
    return ("\n".join(rows) + "\n").encode()


@pytest.fixture(scope="module")
def logs(platform: Platform) -> Iterator[str]:
    """A log collection with the lines of two hosts."""
    with platform.client() as verso:
        assert verso.create_collection(NAME, kind=CollectionKind.LOGS).kind is CollectionKind.LOGS
        for host in "ab":
            report = verso.ingest_lines([text(host)], collection=NAME, labels={"host": host})
            assert report.lines == LINES
        yield NAME
        verso.delete_collection(NAME)


def read(verso: Client, **asked: object) -> bytes:
    fields = {"collection": NAME, "limit": 0, "raw": True, **asked}
    return b"".join(verso.lines(LinesRequest.model_validate(fields)))


def test_lines_come_out_byte_for_byte(verso: Client, logs: str) -> None:
    assert read(verso, filter={"field": "host", "eq": "a"}) == text("a")
    everything = read(verso).splitlines()
    assert sorted(everything) == sorted((text("a") + text("b")).splitlines())
    first = text("a").splitlines()[0]
    assert verso.get("0:0", collection=logs).data == first
    with pytest.raises(DocumentUnknown):
        verso.get(f"0:{LINES}", collection=logs)


def test_rows_have_ids_times_and_labels(verso: Client, logs: str) -> None:
    rows = [json.loads(row) for row in read(verso, raw=False, limit=5, order="newest").splitlines()]
    *lines, more = rows
    assert len(lines) == 5
    assert set(lines[0]) == {"id", "time", "text", "labels"}
    assert "next_cursor" in more
    rest = read(verso, raw=False, cursor=more["next_cursor"], order="newest").splitlines()
    ids = {row["id"] for row in lines} | {json.loads(row)["id"] for row in rest}
    assert len(ids) == 2 * LINES


def test_a_search_finds_statements(verso: Client, logs: str) -> None:
    found = verso.search("disk cannot write a block", collection=logs)
    best = found.hits[0]
    assert best.statement is not None
    assert "write block" in best.statement
    assert best.count == 2 * LINES // 3
    assert len(best.lines) == 3
    only = verso.search(
        "disk cannot write a block", collection=logs, filter=Filter(field="host", eq="b")
    )
    assert only.hits[0].count == LINES // 3


def test_statistics_show_what_lines_take(verso: Client, logs: str) -> None:
    held = verso.stats(logs).lines
    assert held is not None
    assert (held.lines, held.streams, held.bytes_text) == (2 * LINES, 2, 2 * len(text("a")))
    assert held.bytes_segments < held.bytes_memory < held.bytes_text


def test_the_command_line_reads_and_writes_files(
    platform: Platform, logs: str, tmp_path: Path
) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(text("c", 500) + b"no line end")
    run = partial(command_line, platform.url)
    run("ingest", str(path), "-c", logs, "-m", "host=c").check_returncode()
    done = run("logs", "-c", logs, "--raw", "--where", "host=c")
    assert (done.returncode, done.stdout) == (0, path.read_bytes())
    done = run("logs", "-c", logs, "cannot write block", "--raw", "-n", "3")
    near = done.stdout.splitlines()
    assert (done.returncode, len(near)) == (0, 3)
    assert all(b": cannot write block " in line for line in near)
    named = ["-c", logs, "--name", "shop", "-m", "code=500", "-m", "ok=true"]
    run("ingest", str(path), *named).check_returncode()
    shown = run("logs", "-c", logs, "--where", "source=shop", "--limit", "1", "--json").stdout
    labels = json.loads(shown.splitlines()[0])["labels"]
    assert labels == {"host": labels["host"], "source": "shop", "code": "500", "ok": "true"}
    assert run("ingest", str(path), "-c", logs, "--replace").returncode == 2


def test_a_file_comes_out_of_the_command_line_byte_for_byte(
    platform: Platform, verso: Client, tmp_path: Path
) -> None:
    """Two files taken in by turns, in parts so small that they are merged."""
    name = "by-turns"
    verso.create_collection(name, kind=CollectionKind.LOGS)
    files = {host: text(host, 800) + b"caf\xc3\xa9 \xff \x00 \r\n\n" for host in "ab"}
    rows = {host: data.splitlines(keepends=True) for host, data in files.items()}
    for start in range(0, len(rows["a"]), 40):
        for host, own in rows.items():
            part = b"".join(own[start : start + 40])
            verso.ingest_lines([part], collection=name, labels={"host": host})

    def printed(*options: str) -> bytes:
        done = command_line(platform.url, "logs", "-c", name, "--raw", *options)
        done.check_returncode()
        return done.stdout

    deadline = time.monotonic() + 240
    while (held := verso.stats(name).lines) is None or held.segments > 20:
        assert time.monotonic() < deadline, held
        time.sleep(0.2)
    for host, data in files.items():
        assert printed("--where", f"host={host}") == data
        assert printed("--where", f"host={host}", "--order", "newest") == b"".join(
            reversed(rows[host])
        )
    # Streams are merged by time: lines of one second stand beside one another, in stream order.
    whole = printed().splitlines(keepends=True)
    assert sorted(whole) == sorted(rows["a"] + rows["b"])
    seconds = [row[:19] for row in whole if row.startswith(b"2026")]
    assert seconds == sorted(seconds)
    verso.delete_collection(name)


def test_times_are_read_as_the_sender_says(
    platform: Platform, verso: Client, logs: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.log"
    path.write_bytes(
        b"24.11.2026 10:00:01 web[12]: user bob logged in\n"
        b"  from a host that nobody knows\n"
        b"24.11.2026 11:05:01 web[13]: payment 4711 was refused\n"
    )
    rows = path.read_bytes().splitlines(keepends=True)

    def ingest(source: str, *options: str) -> int:
        named = [str(path), "-c", logs, "--name", source, *options]
        return command_line(platform.url, "ingest", *named).returncode

    def since(source: str, moment: str) -> bytes:
        span = ["--since", f"2026-11-24T{moment}Z", "--until", "2026-11-24T23:00:00Z"]
        named = ["logs", "-c", logs, "--raw", "--where", f"source={source}", *span]
        done = command_line(platform.url, *named)
        done.check_returncode()
        return done.stdout

    assert ingest("own", "--time-format", "%d.%m.%Y %H:%M:%S") == 0
    assert since("own", "10:00:01") == b"".join(rows)
    assert since("own", "10:00:02") == rows[2]
    assert ingest("arrival", "--no-time") == 0
    assert since("arrival", "00:00:00") == b""
    assert ingest("wrong", "--time-format", "%d.%m.%Y") != 0
    refused = httpx2.post(
        f"{platform.url}/v1/ingest?collection={logs}&time_format=%25q",
        content=b"a line\n",
        headers={"Content-Type": "text/plain"},
        timeout=60,
    )
    assert (refused.status_code, refused.json()["code"]) == (422, "request_invalid")
    found = verso.count(logs, filter=Filter(field="source", eq="wrong"))
    assert found.documents == 0


def test_what_a_kind_cannot_do_is_refused(platform: Platform, verso: Client, logs: str) -> None:
    answer = httpx2.post(
        f"{platform.url}/v1/ingest?collection=default",
        content=b"a line\n",
        headers={"Content-Type": "text/plain"},
        timeout=60,
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "kind_unsupported")
    with pytest.raises(KindUnsupported):
        verso.update("0:1", collection=logs, metadata={"reviewed": True})
    with pytest.raises(KindUnsupported):
        verso.fit(logs)
    with pytest.raises(KindUnsupported):
        verso.create_collection("both-logs", kind=CollectionKind.LOGS, text_policy=TextPolicy.BOTH)


def test_what_collections_do_works_on_lines(verso: Client, logs: str) -> None:
    of_a = Filter(field="host", eq="a")
    assert verso.count(logs, filter=of_a).documents == LINES
    [hosts] = verso.facets(["host"], collection=logs).facets
    assert {"a", "b"} <= {one.value for one in hosts.values}
    page = verso.query(logs, filter=of_a, order=Order.TIME, descending=True, limit=3)
    assert [row.metadata for row in page.documents] == [{"host": "a"}] * 3
    assert verso.documents(logs).documents[0].id == "0:0"
    groups = verso.cluster(ClusterRequest(collection=logs)).groups
    assert groups[0].template is not None
    assert sum(group.size for group in groups) == verso.count(logs).documents


def test_lines_alone_make_no_files_of_vectors_and_a_first_record_does(
    platform: Platform, verso: Client
) -> None:
    verso.create_collection("alone", kind=CollectionKind.LOGS)
    report = verso.ingest_lines([text("a", 300)], collection="alone", labels={"host": "a"})
    assert (report.lines, report.records) == (300, 0)
    folder = platform.data / "vectors" / "alone"
    assert [path.name for path in folder.iterdir()] == ["collection.json"]
    held = verso.stats("alone")
    assert held.kept is not None
    assert held.kept.bytes_disk is not None
    assert (held.points, held.kept.bytes_disk) == (0, held.kept.bytes_points)
    assert 0 < held.kept.bytes_disk <= 8192
    assert verso.search("disk cannot write", collection="alone").hits
    verso.delete("0:0", collection="alone")
    assert verso.count("alone").documents == 299
    note = Document("a note beside the lines, kept by itself", id="note")
    assert verso.ingest([note], collection="alone").documents == 1
    assert verso.get("note", collection="alone").data == str(note.text).encode()
    assert {one.document for one in verso.search(str(note.text), collection="alone").hits} >= {
        "note"
    }
    assert verso.count("alone").documents == 300
    assert verso.stats("alone").points == 1
    verso.delete_collection("alone")
    assert not folder.exists()


def test_heads_read_lines(headed: Platform, verso: Client, logs: str) -> None:
    line = verso.get("0:1", collection=logs).text or ""
    [one, missing] = verso.classify("kinds", ids=["0:1", "0:99999"], collection=logs)
    [text] = verso.classify("kinds", texts=[line])
    assert one.heads[0].confidence == pytest.approx(text.heads[0].confidence)
    assert missing.error is not None
    found = verso.answer("which volume cannot be written", collection=logs)
    assert found.contexts > 0
    for part in found.answers:
        assert part.data in verso.get(str(part.document), collection=logs).data
    reranked = verso.search("cannot write a block", collection=logs, rerank="pairs", limit=2)
    assert all(hit.rerank_score is not None for hit in reranked.hits)


def test_a_migration_leaves_the_lines_as_they_are(verso: Client, logs: str) -> None:
    before = read(verso)
    verso.migrate(logs)
    deadline = time.monotonic() + 240
    while (state := verso.migration(logs)).running:
        assert time.monotonic() < deadline, state
        time.sleep(0.2)
    assert state.stage == "done"
    assert read(verso) == before
