"""The `verso` command line against a real platform, as a person or a script runs it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import httpx2
import pytest
from tests.e2e.conftest import Platform, command_line

from verso_client import Client, Document, Retries
from verso_core import api_keys
from verso_core.api_keys import Scope
from verso_core.errors import CollectionUnknown, Forbidden, Unauthorized
from verso_standalone.valkey import free_port

LOG = b"first line\nsecond line\r\n\nthird \xff line"


@pytest.fixture
def verso_command(platform: Platform) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    return partial(command_line, platform.url)


@pytest.fixture
def verso_program(platform: Platform) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """The command line in a process of its own, as a shell runs it."""

    def run(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "verso_client", "--url", platform.url, *words],
            input=stdin,
            capture_output=True,
            timeout=120,
            check=False,
            env={**os.environ, "COLUMNS": "200"},
        )

    return run


def test_lines_go_in_are_found_and_come_out_as_they_were(
    verso_command: Callable[..., subprocess.CompletedProcess[bytes]],
    collection: str,
    tmp_path: Path,
) -> None:
    path = tmp_path / "some.log"
    path.write_bytes(LOG)
    asked = ("ingest", str(path), "-c", collection, "-m", "host=a", "--name", "web", "--json")
    done = verso_command(*asked)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["documents"] == 3
    assert done.stderr == b""
    assert verso_command(*asked).returncode == 0  # the same lines, so the same documents

    found = verso_command("search", "third", "-c", collection, "-w", "host=a", "--json")
    hits = json.loads(found.stdout)["hits"]
    first, second, third = sorted(hit["document"] for hit in hits)
    assert [one.split(":")[2].split("-")[0] for one in (first, second, third)] == ["0", "11", "25"]
    assert first.startswith("web:")

    assert verso_command("get", second, "-c", collection).stdout == b"second line\r"
    assert verso_command("get", third, "-c", collection).stdout == b"third \xff line"
    output = tmp_path / "out"
    verso_command("get", third, "-c", collection, "-o", str(output))
    assert output.read_bytes() == b"third \xff line"

    shown = verso_command("reconstruct", first, "no-such", "-c", collection)
    assert shown.returncode == 4
    assert b"first line" in shown.stdout
    assert b"document_unknown" in shown.stdout

    forms = (
        ("stats", "-c", collection),
        ("stats", collection),
        ("collections", "show", collection),
    )
    deadline = time.monotonic() + 240
    while True:  # the point of the deleted document goes later, and files of words are merged
        stats, *others = [json.loads(verso_command(*form, "--json").stdout) for form in forms]
        if (stats["points"] == 3 and others == [stats] * 2) or time.monotonic() > deadline:
            break
    assert (stats["documents"], stats["points"]) == (3, 3)
    assert others == [stats] * 2
    assert verso_command("delete", "no-such", first, "-c", collection).returncode == 4
    assert verso_command("delete", first, "-c", collection).returncode == 1
    assert verso_command("get", first, "-c", collection).returncode == 1
    assert stats["bytes_text"] == len(b"first line" + b"second line\r" + b"third \xff line")


def test_a_line_of_a_pipe_that_stays_open_is_found_at_once(
    platform: Platform, verso: Client, collection: str
) -> None:
    argv = [sys.executable, "-m", "verso_client", "--url", platform.url]
    with subprocess.Popen(
        [*argv, "ingest", "-", "-c", collection, "--name", "tail", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as running:
        assert running.stdin is not None
        running.stdin.write(b"2026-11-22T00:00:10Z disk is full\n")
        running.stdin.flush()
        deadline = time.monotonic() + 240
        while not (hits := verso.search("disk", collection=collection).hits):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert hits[0].time == 1795305610.0
        assert running.poll() is None  # the pipe is still open
        running.send_signal(signal.SIGINT)
        told, _ = running.communicate(timeout=240)
        assert (running.returncode, json.loads(told)["documents"]) == (0, 1)


def test_the_doctor_finds_nothing_wrong_with_a_platform_that_works(
    verso_command: Callable[..., subprocess.CompletedProcess[bytes]],
) -> None:
    done = verso_command("doctor", "--json")
    found = {one["what"]: one for one in json.loads(done.stdout)}
    assert found["worker"]["found"] == "ready"
    assert [one for one in found.values() if one["wrong"] and one["area"] != "free"] == []


def test_standard_input_is_read_and_tables_are_for_people(
    verso_command: Callable[..., subprocess.CompletedProcess[bytes]],
    verso_program: Callable[..., subprocess.CompletedProcess[bytes]],
    collection: str,
) -> None:
    rows = b'{"text": "a", "id": "x"}\n{"text_base64": "/w==", "id": "y"}\n'
    done = verso_program("ingest", "-", "--format", "jsonl", "-c", collection, stdin=rows)
    assert done.returncode == 0, done.stderr
    assert b"2 documents in 2 chunks" in done.stdout
    for run in (verso_program, verso_command):
        assert run("get", "y", "-c", collection).stdout == b"\xff"
    assert collection.encode() in verso_command("collections", "list").stdout
    assert b"hits in" in verso_command("search", "a", "-c", collection).stdout


def test_documents_that_fail_are_named_and_the_status_tells(
    verso_command: Callable[..., subprocess.CompletedProcess[bytes]], collection: str
) -> None:
    rows = b'{"text": "a", "id": "x"}\n{"text": "b", "id": "x"}\n'
    done = verso_command("ingest", "-", "--format", "jsonl", "-c", collection, stdin=rows)
    assert done.returncode == 4
    assert b"failed: x: duplicate_id" in done.stdout


def test_an_error_is_one_line_and_status_1(
    verso_command: Callable[..., subprocess.CompletedProcess[bytes]],
    verso_program: Callable[..., subprocess.CompletedProcess[bytes]],
) -> None:
    for run in (verso_program, verso_command):
        done = run("get", "no-such-document")
        assert done.returncode == 1
        assert done.stdout == b""
        assert done.stderr.startswith(b"document_unknown: ")
        assert done.stderr.count(b"\n") == 1


def test_jobs_can_be_followed_to_their_end(
    verso_command: Callable[..., subprocess.CompletedProcess[bytes]],
    verso: Client,
    collection: str,
    lines: Callable[[int], list[object]],
) -> None:
    [job] = verso.submit(lines(100), collection=collection)  # type: ignore[arg-type]
    done = verso_command("jobs", "follow", job.id, "--json")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["data"]["status"] == "succeeded"
    assert b"succeeded" in verso_command("jobs", "show", job.id).stdout


def free_ports(count: int) -> int:
    """Return the first of ports one after another on which nothing listens now."""
    while True:
        first = free_port()
        with ExitStack() as stack, suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def test_beyond_loopback_only_callers_with_a_key_are_served_each_what_is_its_own(
    new_platform: Callable[..., Platform],
) -> None:
    first_port = free_ports(3)
    platform = new_platform(VERSO_METRICS_PORT=str(first_port))
    platform.options = ["--host", "0.0.0.0"]  # noqa: S104
    path = platform.data / api_keys.FILE_NAME
    secrets = {}
    for name, scopes in (("ann", ["ingest", "read"]), ("bob", ["read"]), ("root", ["admin"])):
        secrets[name], key = api_keys.mint(name, scopes=[Scope(scope) for scope in scopes])
        api_keys.add(path, key)
    platform.start()
    once = Retries(patience_s=0.0)
    with Client(platform.url, retries=once) as stranger:
        assert stranger.ready()
        with pytest.raises(Unauthorized):
            stranger.collections()
    mistaken = Client(platform.url, api_key="vk_wrong", retries=once)
    with mistaken as wrong, pytest.raises(Unauthorized):
        wrong.collections()
    with (
        Client(platform.url, api_key=secrets["ann"]) as ann,
        Client(platform.url, api_key=secrets["bob"], retries=once) as bob,
        Client(platform.url, api_key=secrets["root"]) as root,
    ):
        assert ann.create_collection("hers").owner == "ann"
        ann.ingest([Document("a secret of hers", id="a")], collection="hers")
        assert [found.name for found in bob.collections()] == ["default"]
        with pytest.raises(CollectionUnknown):
            bob.get("a", collection="hers")
        with pytest.raises(Forbidden, match="scope ingest"):
            bob.ingest([Document("b")])
        assert ann.get("a", collection="hers").data == b"a secret of hers"
        root.delete_collection("hers")
        api_keys.revoke(path, "bob")
        time.sleep(1.5)
        with pytest.raises(Unauthorized):
            bob.collections()
    audit = (platform.data / "logs/audit.log").read_text()
    noted = [json.loads(line) for line in audit.splitlines()]
    assert [(row["act"], row.get("tenant"), row.get("target")) for row in noted] == [
        ("collection_delete", "root", "hers"),
        ("keys", None, None),
    ]
    for number in range(3):  # gateway, worker, keeper
        address = f"http://127.0.0.1:{first_port + number}/metrics"
        assert "verso_" in httpx2.get(address, timeout=60).text
    for part in ("vectors", "logs", "valkey"):
        assert (platform.data / part).stat().st_mode & 0o077 == 0, part
    platform.close()


def test_what_serves_is_told_and_what_is_not_there_is_not_promoted(
    verso_command: Callable[..., subprocess.CompletedProcess[bytes]],
) -> None:
    shown = json.loads(verso_command("models", "list", "--json").stdout)
    assert shown["artifact"]["stable"]
    assert b"artifact" in verso_command("models", "list").stdout
    assert verso_command("models", "show").returncode == 0
    done = verso_command("models", "promote")
    assert (done.returncode, done.stderr[:16]) == (1, b"request_invalid:")
    assert verso_command("models", "rollback", "nothing").stderr.startswith(b"head_unknown:")
    assert verso_command("train", "head", "mood").returncode == 2
