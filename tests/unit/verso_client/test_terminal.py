"""What the command line says where an argument, its input or its output is of no use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

from verso_client import Client
from verso_client.cli import app as command_line
from verso_client.cli import main, render
from verso_client.cli.terminal import Exit, out
from verso_core.jobs.cluster import Clustered
from verso_core.texts import check_document_id

NOWHERE = ["--url", "http://127.0.0.1:9", "--patience", "0", "--wait"]
TEXT = "\u00e9 \U0001f600"


class Answering(BaseHTTPRequestHandler):
    """Finds one text, whatever is asked."""

    def do_GET(self) -> None:
        hit = {"id": "a#0", "document": "a", "chunk": 0, "score": 1.0, "text": TEXT}
        found = {"id": "a", "exact": True, "text": TEXT, "hits": [hit]}
        body = json.dumps({"results": []} if "rerank" in self.path else found).encode()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the library's names

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    """The address of a platform that finds one text."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def program(
    url: str, *words: str, output: int, encoding: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "verso_client", "--url", url, *words],
        stdout=output,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["cluster", "-c", "No Name"], "request_invalid: /collection: "),
        (["cluster", "--eps", "-1"], "request_invalid: /eps: "),
        (["ingest", "a" * 300], "file: File name too long: aaa"),
        (["--url", "http://a:808O", "stats"], "request_invalid: expected an address"),
        (["--url", "http://[", "doctor"], "request_invalid: expected an address"),
        (["--key", "\u00e9", "doctor"], "request_invalid: expected an API key"),
        (["--key", "\u00e9", "mcp"], "request_invalid: expected an API key"),
        (["get", "a" * 70_000], "request_invalid: expected shorter parameters: "),
        (["documents", "update", "a", "--metadata", '{"a": NaN}'], "metadata_invalid: "),
    ],
)
def test_what_no_command_can_use_is_one_line(words: list[str], told: str) -> None:
    result = CliRunner().invoke(command_line.app, [*NOWHERE, *words])
    assert (result.exit_code, result.stderr.count("\n")) == (Exit.ERROR, 1)
    assert result.stderr.startswith(told)


@pytest.mark.parametrize(
    "words",
    [
        ["search", "a", "--filter", "[" * 20_000],
        ["documents", "update", "a", "--metadata", "[" * 20_000],
    ],
)
def test_json_that_is_too_deep_is_wrong_usage(words: list[str]) -> None:
    assert CliRunner().invoke(command_line.app, [*NOWHERE, *words]).exit_code == Exit.USAGE


@pytest.mark.parametrize(
    "content", ['[["a"]]', "[[null]]", "[1, [2]]", f"[{10**400}]", "[" * 20_000]
)
def test_what_is_no_vector_is_told_before_it_is_sent(tmp_path: Path, content: str) -> None:
    path = tmp_path / "vectors.json"
    path.write_text(content, encoding="ascii")
    asked = ["reconstruct", "--vectors", str(path)]
    result = CliRunner().invoke(command_line.app, [*NOWHERE, *asked])
    assert result.exit_code == Exit.ERROR
    assert result.stderr.startswith("request_invalid: expected ")


def test_texts_of_standard_input_are_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[list[str]] = []

    def rerank(_client: Client, _query: str, texts: list[str], **_options: object) -> list[str]:
        found.append(texts)
        return []

    monkeypatch.setattr("verso_client.client.Client.rerank", rerank)
    monkeypatch.setattr("verso_client.client.Client.alive", lambda _: None)
    given = "one\u2028two\r\n\nthree\x0bfour".encode()
    result = CliRunner().invoke(command_line.app, [*NOWHERE, "rerank", "q", "-"], input=given)
    assert (result.exit_code, found) == (0, [["one\u2028two", "three\x0bfour"]])
    result = CliRunner().invoke(command_line.app, [*NOWHERE, "rerank", "q", "-"], input=b"\xff")
    assert result.stderr.startswith("text_not_encodable: ")


def test_an_id_that_no_document_can_have_keeps_no_other_from_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone: list[str] = []

    def delete(_client: Client, document: str, **_options: object) -> None:
        gone.append(check_document_id(document))

    monkeypatch.setattr("verso_client.client.Client.delete", delete)
    asked = ["delete", "", "a#0", "b"]
    result = CliRunner().invoke(command_line.app, [*NOWHERE, *asked])
    assert (result.exit_code, gone) == (Exit.PARTLY, ["b"])
    assert result.stderr.count("id_invalid: ") == 2


def test_an_interrupt_before_the_command_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def add_plugins(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "add_plugins", add_plugins)
    with pytest.raises(SystemExit, match="interrupted: "):
        main()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_empty(url: str, closed: str) -> None:
    for words in ("rerank q -", "get a"):
        asked = f'"{sys.executable}" -m verso_client --url {url} {words} {closed}'
        done = subprocess.run(
            ["/bin/sh", "-c", asked], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (Exit.OK, b"")


def test_no_text_controls_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    line = "a\x1b]52;c;eA==\x07b \x9b2Jc \u202ed\u202c <*>"
    group = {"size": 1, "representatives": [], "template": line}
    found = {"groups": [group], "clusters": 1, "records": 1, "alone": 0, "unread": 0}
    render.clusters(out(), Clustered.model_validate(found))
    told = capsys.readouterr().out
    assert "a]52;c;eA==b 2Jc d <*>" in told
    assert all(one.isprintable() for one in told.splitlines())


def test_what_a_terminal_has_no_character_for_is_shown_as_an_escape(url: str) -> None:
    done = program(url, "search", "a", output=subprocess.PIPE, encoding="ascii")
    assert done.returncode == 0, done.stderr
    assert rb"\xe9 \U0001f600" in done.stdout
    assert b"1 hit in" in done.stdout


@pytest.mark.parametrize(
    "words",
    [["search", "a"], ["search", "a", "--json"], ["get", "a"], ["--version"], ["--help"]],
)
def test_a_full_disk_behind_the_output_is_one_line(url: str, words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = program(url, *words, output=full.fileno(), encoding="utf-8")
    told = b"file: No space left on device\n"
    assert (done.returncode, done.stderr) == (Exit.ERROR, told)
