"""The command line: what it makes of its arguments, and how it fails."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import entry_points
from pathlib import Path
from threading import Thread
from unittest import mock

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from verso_client.cli import app as command_line
from verso_client.cli import logs, render, sources
from verso_client.cli.filters import filter_of
from verso_client.cli.ingest import takes_lines
from verso_client.cli.sources import Format
from verso_client.cli.terminal import Exit, failures_reported
from verso_client.client import Client
from verso_core.jobs import CollectionKind, Filter, ItemError
from verso_core.jobs.collections import CollectionInfo, CollectionRequest
from verso_core.jobs.search import MAX_HITS, Found, Hit, StatementLine
from verso_core.jobs.statistics import Statistics

NOWHERE = ["--url", "http://127.0.0.1:9", "--patience", "0", "--wait"]


def test_an_unreachable_platform_is_told_at_once_with_status_3() -> None:
    started = time.monotonic()
    nowhere = ["--url", "http://127.0.0.1:9"]
    result = CliRunner().invoke(command_line.app, [*nowhere, "ingest", "-"], input="a\n")
    assert result.exit_code == 3
    assert time.monotonic() - started < 100  # one that waits for a platform does for 600
    assert "`verso up`" in result.stderr
    assert result.stderr.startswith("unavailable: no answer from http://127.0.0.1:9")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_missing_file_is_one_line_that_names_it(tmp_path: Path) -> None:
    result = CliRunner().invoke(command_line.app, [*NOWHERE, "ingest", str(tmp_path / "none.log")])
    assert result.exit_code == 1
    assert "none.log" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_request_that_cannot_be_built_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, failures_reported():
        CollectionRequest.model_validate({"name": "Linux", "kind": "logs"})
    assert ended.value.exit_code == Exit.ERROR
    told = capsys.readouterr().err
    assert told.startswith("request_invalid: /name: String should match")
    assert told.count("\n") == 1


@pytest.mark.parametrize("asked", [["get", "a\udcff"], ["get", "a", "-c", "\udcff"]])
def test_an_argument_that_is_not_utf8_is_one_line(asked: list[str]) -> None:
    result = CliRunner().invoke(command_line.app, [*NOWHERE, *asked])
    assert result.exit_code == Exit.ERROR
    assert result.stderr.startswith("id_invalid: expected")
    assert result.stderr.count("\n") == 1


def test_a_broken_json_line_is_named_by_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n{"text": \n', encoding="ascii")
    result = CliRunner().invoke(command_line.app, [*NOWHERE, "ingest", str(path)])
    assert result.exit_code == 1
    assert result.stderr.startswith("request_invalid: ")
    assert "a.jsonl:2" in result.stderr


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_file_that_holds_no_questions_is_told_before_it_is_sent(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "questions.json"
    path.write_text(content, encoding="ascii")
    asked = ["train", "head", "manual", "--task", "answer", "--data", str(path)]
    result = CliRunner().invoke(command_line.app, [*NOWHERE, *asked])
    assert result.exit_code == 1
    assert result.stderr.startswith("training_data_invalid: expected a JSON")


def test_only_a_head_that_classifies_is_trained_on_a_collection() -> None:
    asked = ["train", "head", "manual", "--task", "answer", "-c", "logs", "--label-key", "kind"]
    result = CliRunner().invoke(command_line.app, [*NOWHERE, *asked])
    assert result.exit_code == 2
    assert "--data" in result.stderr


def test_wrong_usage_is_status_2() -> None:
    assert CliRunner().invoke(command_line.app, [*NOWHERE, "reconstruct"]).exit_code == 2
    assert (
        CliRunner()
        .invoke(command_line.app, [*NOWHERE, "ingest", "-", "--meta", "novalue"])
        .exit_code
        == 2
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["serach", "a"], "Did you mean 'search'"),
        (["search", "a", "--limti", "3"], "--limit"),
        (["search", "a", "--since", "tomorrow"], "15m, 2d, yesterday"),
        (["stats", "logs", "-c", "other"], "expected one collection"),
        (["ingest", "a", "b", "--name", "c", "--replace"], "expected one file"),
    ],
)
def test_a_mistake_is_told_with_what_was_meant(words: list[str], told: str) -> None:
    result = CliRunner().invoke(command_line.app, [*NOWHERE, *words], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.parametrize(
    ("words", "asked"), [([], 10), (["--limit", "3"], 3), (["--limit", "0"], MAX_HITS)]
)
def test_statements_are_asked_for_up_to_the_limit_and_0_is_the_most(
    words: list[str], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = mock.MagicMock()
    platform.search.return_value = Found(hits=())
    monkeypatch.setattr(logs, "client", lambda _: contextlib.nullcontext(platform))
    done = CliRunner().invoke(command_line.app, ["logs", "who failed?", "-c", "own", *words])
    assert done.exit_code == 0
    assert platform.search.call_args.kwargs["limit"] == asked


def test_the_version_is_shown_and_the_help_is_in_groups() -> None:
    assert CliRunner().invoke(command_line.app, ["--version"]).stdout.startswith("verso ")
    told = CliRunner().invoke(command_line.app, ["--help"]).stdout
    for group in (command_line.TEXTS, command_line.HEADS, command_line.CONTENTS):
        assert f"─ {group} ─" in told
    assert "--install-completion" in told


def test_a_shell_completes_a_line() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.argv = ['verso']; from verso_client.cli import main; main()",
        ],
        env={
            **os.environ,
            "_VERSO_COMPLETE": "complete_bash",
            "COMP_WORDS": "verso search --li",
            "COMP_CWORD": "2",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["--limit"]


def test_a_reader_that_went_away_is_no_fault_of_a_file() -> None:
    with pytest.raises(BrokenPipeError), failures_reported():
        raise BrokenPipeError


def test_some_failed_items_are_another_status_than_all_of_them() -> None:
    assert [Exit.of(failed, 3) for failed in (0, 1, 3)] == [0, 4, 1]


def test_the_doctor_says_what_is_wrong(tmp_path: Path) -> None:
    asked = [*NOWHERE, "doctor", "--data", str(tmp_path / "data"), "--json"]
    result = CliRunner().invoke(command_line.app, asked)
    found = {one["what"]: one for one in json.loads(result.stdout)}
    assert found["gateway"]["wrong"] == "start it: verso up"
    assert found["python"]["wrong"] is None
    assert Path(found["models"]["found"], "registry.json").is_file()  # of the checkout
    assert "GiB" in found[f"disk at {tmp_path}"]["found"]
    assert result.exit_code in (1, 3)


def test_the_doctor_knows_another_program_at_the_address(tmp_path: Path) -> None:
    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        asked = ["--url", f"http://127.0.0.1:{server.server_port}", "doctor", "--json"]
        result = CliRunner().invoke(command_line.app, [*asked, "--data", str(tmp_path)])
        server.shutdown()
    [gateway] = [one for one in json.loads(result.stdout) if one["what"] == "gateway"]
    assert "another program answers" in gateway["wrong"]


def test_conditions_become_a_filter() -> None:
    where = ["host=a", "level!=debug", "host=b", "ok=true", "code>=3", "path^=/var/1", "k.b=x=y"]
    found = filter_of(where, '{"field": "x", "exists": true}')
    assert found is not None
    assert found.model_dump()["and"] == [
        {"field": "level", "ne": "debug"},
        {"field": "code", "gte": 3},
        {"field": "path", "prefix": "/var/1"},
        {"field": "host", "in": ["a", "b"]},
        {"field": "ok", "eq": True},
        {"field": "k.b", "eq": "x=y"},
        {"field": "x", "exists": True},
    ]
    assert filter_of(["host=a"]) == Filter(field="host", eq="a")
    assert filter_of(None) is None


def test_the_time_of_a_condition_is_in_the_forms_of_all_commands() -> None:
    found = filter_of(["time>=2026-11-22", "time<1795363200", "time!=2h", "metadata.time=2h"])
    assert found is not None
    after, before, ago, metadata = found.model_dump()["and"]
    assert after == {"field": "time", "gte": 1795305600.0}
    assert before == {"field": "time", "lt": 1795363200}
    assert time.time() - ago["ne"] == pytest.approx(7200, abs=60)
    assert metadata == {"field": "metadata.time", "eq": "2h"}


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (["host"], None),
        (["=a"], None),
        (["n>x"], None),
        (["time>soon"], None),
        (None, "{"),
        (None, '{"host": "a"}'),
    ],
)
def test_what_is_no_condition_is_wrong_usage(where: list[str] | None, text: str | None) -> None:
    with pytest.raises(typer.BadParameter):
        filter_of(where, text)


def test_collections_are_shown_with_what_is_set_of_them() -> None:
    plain = CollectionInfo(name="a", precision="int8", text_policy="patch", space="s", dim=4)
    bounded = plain.model_copy(update={"indexes": {"host": "keyword"}, "retention_days": 30.0})
    owned = bounded.model_copy(update={"kind": CollectionKind.LOGS, "owner": "ann"})
    parted = owned.model_copy(update={"partitions": 3, "missing_partitions": ("d.1",)})
    words = ("host=keyword", "days kept", "logs", "ann", "partitions", "d.1")
    for found, shown in (
        ([plain], 0), ([plain, bounded], 2), ([plain, bounded, owned], 4), ([plain, parted], 6)
    ):  # fmt: skip
        console = Console(width=200, record=True, file=io.StringIO())
        render.collections(console, found)
        text = console.export_text()
        assert [word in text for word in words] == [True] * shown + [False] * (6 - shown)
    console = Console(width=200, record=True, file=io.StringIO())
    held = {name: value for name, value in parted if name in Statistics.model_fields}
    render.statistics(console, Statistics(documents=1, bytes_text=2, **held))
    text = console.export_text()
    assert all(word in text for word in (*words, "int8", "patch"))


def test_statements_records_and_what_cannot_be_read_are_shown_in_one_list() -> None:
    line = StatementLine(id="0:7", time="2026-01-01T00:00:00Z", text="job 7 is done")
    plain = {"document": "note", "chunk": 0, "score": 0.5}
    statement = Hit(
        **plain, id="0:7#0", count=1, first_seen=0.0, last_seen=1.0, lines=(line,), statement="job",
        statement_id="3",
    )  # fmt: skip
    record = Hit(**plain, id="note#0", text="a [note]")
    lost = Hit(**plain, id="gone#0", error=ItemError(code="record_corrupt", detail="no vector"))
    console = Console(width=200, record=True, file=io.StringIO())
    render.statements(console, Found(hits=(statement, record, lost)), took_ms=3.0)
    assert console.export_text().splitlines() == [
        "0.500  statement 3: 1 line, 1970-01-01 00:00:00Z to 1970-01-01 00:00:01Z",
        "  job 7 is done",
        "0.500  record note#0",
        "  a [note]",
        "0.500  record gone#0",
        "  record_corrupt: no vector",
        "3 hits in 3 ms",
    ]


def test_a_single_vector_is_read_as_a_list_of_one(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    path.write_text(json.dumps([0.5, 0.5]), encoding="ascii")
    assert sources.vectors(path) == [[0.5, 0.5]]


def added(*arguments: str) -> set[str]:
    """Return the top-level commands that the plug-ins add for a command line."""
    app = typer.Typer()

    @app.command()
    def search() -> None:
        """Stand for a command of the client's own."""

    command_line.add_plugins(app, arguments)
    return {command.name or "search" for command in app.registered_commands} - {"search"}


def test_other_packages_add_commands() -> None:
    names = {entry.name for entry in entry_points(group=command_line.PLUGINS)}
    assert added() == {name for name in names if " " not in name}
    assert not names or {"up", "demo", "backup", "restore"} <= names


def test_only_the_commands_that_are_named_are_loaded() -> None:
    assert added("search", "--limit", "3") == set()
    assert added("--url", "http://localhost", "up") in ({"up"}, set())
    assert added("serach") == added()  # so that a typing error shows what there is


def test_a_pipe_is_not_opened_before_it_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "lines.log"
    os.mkfifo(pipe)
    platform = mock.create_autospec(Client, instance=True)

    def collections() -> list[CollectionInfo]:
        time.sleep(0.5)
        return []

    platform.collections.side_effect = collections
    with subprocess.Popen(["sh", "-c", f"{{ sleep 0.1; echo a; }} > '{pipe}'"]) as writer:
        assert not takes_lines(platform, "logs", [str(pipe)], Format.AUTO)
        assert writer.poll() is None  # it waits for a reader
        assert pipe.read_bytes() == b"a\n"
    assert writer.returncode == 0
