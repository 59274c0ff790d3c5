"""The rules that both clients share, played with scripted answers."""

from __future__ import annotations

import inspect
import io
import json
import math
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import httpx2
import pytest
from rich.console import Console

from verso_client import AsyncClient, Client, Document, File, Progress, Retries
from verso_client.cli import render
from verso_client.operations.lines import SourceLines
from verso_core.errors import (
    AttemptsExhausted,
    CollectionUnknown,
    DocumentUnknown,
    EngineUnavailable,
    HeadUnknown,
    IdInvalid,
    MetadataInvalid,
    NotReady,
    RequestInvalid,
    TextNotEncodable,
    Unavailable,
    VectorInvalid,
    VersoError,
)
from verso_core.jobs import Filter
from verso_core.jobs.logs.lines import LinesRequest
from verso_core.jobs.logs.tail import TailRequest

Answer = Callable[[httpx2.Request], httpx2.Response]

JOB: dict[str, Any] = {
    "id": "j1", "kind": "search", "status": "succeeded", "items": 1, "ok": 1, "failed": 0,
}  # fmt: skip


def client(answer: Answer, *, patience_s: float = 5.0) -> Client:
    retries = Retries(patience_s=patience_s, longest_pause_s=0.01)
    return Client("http://verso.test", transport=httpx2.MockTransport(answer), retries=retries)


def problem(status: int, code: str) -> httpx2.Response:
    return httpx2.Response(status, json={"code": code, "detail": "told"})


def test_a_repeated_request_carries_the_same_idempotency_key() -> None:
    keys: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        keys.append(request.headers["idempotency-key"])
        if len(keys) < 3:
            raise httpx2.ReadError("connection lost")
        return httpx2.Response(200, json={"hits": []})

    with client(answer) as verso:
        assert verso.search("a").hits == ()
        assert len(set(keys)) == 1
        verso.search("a")
    assert len(set(keys)) == 2


def test_an_answer_of_202_is_followed_to_its_results() -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.method)
        if request.method == "POST":
            return httpx2.Response(202, json={**JOB, "status": "queued", "ok": 0})
        hits = [{"id": "d#0", "document": "d", "chunk": 0, "score": 0.5, "text": "x"}]
        return httpx2.Response(200, json={**JOB, "results": [{"hits": hits}], "next_cursor": None})

    with client(answer) as verso:
        [hit] = verso.search("a").hits
    assert hit.data == b"x"
    assert asked == ["POST", "GET", "GET"]


def late(item: dict[str, Any]) -> Answer:
    """Answer with 202, and then with the results of the job."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        if not request.url.path.startswith("/v1/jobs"):
            return httpx2.Response(202, json={**JOB, "status": "queued", "ok": 0})
        return httpx2.Response(200, json={**JOB, "results": [item], "next_cursor": None})

    return answer


def test_heads_and_deletes_of_a_busy_platform_are_told_by_their_jobs() -> None:
    row = {"name": "kinds", "share": 0.1, "stable": None, "canary": None}
    with client(late({"heads": [row]})) as verso:
        assert [one.name for one in verso.heads()] == ["kinds"]
        assert verso.head("kinds").name == "kinds"
        with pytest.raises(HeadUnknown):
            verso.head("other")
    with client(late({"id": "a", "deleted": False})) as verso, pytest.raises(DocumentUnknown):
        verso.delete("a")
    with client(late({"id": "a", "deleted": True})) as verso:
        verso.delete("a")


def test_a_delete_of_a_collection_is_sent_again_under_one_key() -> None:
    keys: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        keys.append(request.headers["Idempotency-Key"])
        if len(keys) == 1:
            raise httpx2.ReadError("the answer was lost", request=request)
        return httpx2.Response(200, json={"name": "c"})

    with client(answer) as verso:
        verso.delete_collection("c")
    assert keys[0] == keys[1]
    error = {"code": "collection_unknown", "detail": "it is gone", "retryable": False}
    with client(late({"error": error})) as verso, pytest.raises(CollectionUnknown):
        verso.delete_collection("c")


def test_an_ingest_reports_each_document_and_counts_what_was_stored() -> None:
    told: list[Progress] = []
    rows = [
        {"id": "a", "chunks": 2, "bytes_text": 9, "bytes_patch": 3, "codecs": {"neural": 2}},
        {"id": "b", "error": {"code": "duplicate_id", "detail": "twice", "retryable": False}},
    ]

    def answer(request: httpx2.Request) -> httpx2.Response:
        job = {**JOB, "kind": "ingest", "items": 2, "ok": 1, "failed": 1}
        if request.method == "POST":
            assert request.url.params["collection"] == "logs"
            assert request.content.count(b"\n") == 1
            return httpx2.Response(202, json=job)
        cursor = request.url.params.get("cursor")
        pages = {None: ([], None), "0": (rows[:1], "1"), "1": (rows[1:], None)}
        results, following = pages[cursor]
        return httpx2.Response(200, json={**job, "results": results, "next_cursor": following})

    with client(answer) as verso:
        report = verso.ingest(
            [Document("one", id="a"), Document("two", id="b")],
            collection="logs",
            progress=told.append,
        )
    assert (report.documents, report.chunks, report.bytes_text) == (1, 2, 9)
    assert (report.bytes_patches, report.codecs) == (3, {"neural": 2})
    assert [item.id for item in report.failed] == ["b"]
    assert (told[-1].sent, told[-1].done) == (2, 2)


def test_a_job_that_died_is_raised_as_its_error() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        status = "queued" if request.method == "POST" else "dead"
        return httpx2.Response(
            202 if request.method == "POST" else 200, json={**JOB, "status": status}
        )

    with client(answer) as verso, pytest.raises(AttemptsExhausted):
        verso.search("a")


def test_an_error_of_the_platform_is_raised_as_its_class() -> None:
    with (
        client(lambda _: problem(404, "document_unknown")) as verso,
        pytest.raises(DocumentUnknown),
    ):
        verso.get("a")


def test_a_failed_item_is_an_error_of_its_own() -> None:
    row = {"error": {"code": "document_unknown", "detail": "none", "retryable": False}}
    answer = {**JOB, "results": [row, {"id": "b", "text": "x", "exact": True}]}
    with client(lambda _: httpx2.Response(200, json=answer)) as verso:
        first, second = verso.reconstruct(["a", "b"])
    assert first.id == "a"
    assert first.error is not None
    assert isinstance(first.error.exception(), DocumentUnknown)
    assert second.data == b"x"


def test_ids_are_quoted_in_paths() -> None:
    paths: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        paths.append(request.url.raw_path)
        return httpx2.Response(200, json={"id": "x", "text": "", "exact": True})

    with client(answer) as verso:
        verso.get("a/b c?d#1", collection="logs")
    assert paths == [b"/v1/documents/a%2Fb%20c%3Fd%231?collection=logs"]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda verso: verso.get("a\udcff"), IdInvalid),
        (lambda verso: verso.get("a", collection="\udcff"), IdInvalid),
        (lambda verso: verso.update("a\udcff", metadata={}), IdInvalid),
        (lambda verso: verso.records("a\udcff"), IdInvalid),
        (lambda verso: verso.head_report("\udcff"), IdInvalid),
        (lambda verso: verso.submit([File(b"x", id="\udcff")]), IdInvalid),
        (lambda verso: verso.submit([File(b"x", name="\udcff.pdf")]), MetadataInvalid),
        (
            lambda verso: verso.ingest_lines([b"a\n"], collection="l", labels={"source": "\udcff"}),
            RequestInvalid,
        ),
        (lambda verso: verso.get("a" * 70_000), RequestInvalid),
        (
            lambda verso: verso.update("a", metadata={"d": datetime.fromisoformat("2026-01-01")}),
            MetadataInvalid,
        ),
        (lambda verso: verso.update("a", metadata={"n": math.nan}), MetadataInvalid),
        (
            lambda verso: verso.update("a", time=datetime.fromisoformat("2026-01-01")),
            RequestInvalid,
        ),
    ],
)
async def test_what_no_request_can_carry_is_an_error_of_the_platform(
    call: Callable[[Any], Any], kind: type[RequestInvalid]
) -> None:
    answer = httpx2.MockTransport(lambda _: httpx2.Response(500))
    with Client("http://verso.test", transport=answer) as verso, pytest.raises(kind):
        call(verso)
    async with AsyncClient("http://verso.test", transport=answer) as verso_async:
        with pytest.raises(kind):
            await call(verso_async)


def test_a_file_whose_name_is_not_utf8_fails_alone() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        row = {"id": "b", "chunks": 1, "bytes_text": 1, "bytes_patch": 1, "codecs": {"raw": 1}}
        job = {**JOB, "kind": "ingest"}
        if request.method == "POST":
            return httpx2.Response(202, json=job)
        return httpx2.Response(200, json={**job, "results": [row], "next_cursor": None})

    with client(answer) as verso:
        report = verso.ingest([File(b"x", name="\udce9.pdf"), File(b"x", name="b.pdf", id="b")])
    [failed] = report.failed
    assert (failed.id, report.documents) == ("\udce9.pdf", 1)
    assert failed.error is not None
    assert failed.error.code == "metadata_invalid"
    shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    render.ingested(Console(file=shown, width=200), report, seconds=1.0)
    shown.seek(0)
    assert "failed: \\udce9.pdf: metadata_invalid" in shown.read()


def test_conditions_are_sent_whatever_string_they_hold() -> None:
    sent: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.content)
        return problem(400, "text_not_encodable")

    where = Filter.model_validate({"field": "host", "eq": "\udcff"})
    with client(answer) as verso, pytest.raises(TextNotEncodable):
        list(verso.lines(LinesRequest(collection="logs", filter=where)))
    with client(answer) as verso, pytest.raises(TextNotEncodable):
        list(verso.tail(TailRequest(collection="logs", filter=where)))
    assert b"\\udcff" in sent[0]


def test_a_platform_that_cannot_be_reached_is_unavailable() -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    with client(answer, patience_s=0) as verso:
        with pytest.raises(Unavailable, match="refused"):
            verso.collections()
        assert not verso.ready()


def test_a_retryable_error_ends_as_itself_when_patience_is_over() -> None:
    broken = client(lambda _: problem(503, "engine_unavailable"), patience_s=0.05)
    with broken as verso, pytest.raises(EngineUnavailable):
        verso.embed(["a"])


def test_lines_are_asked_for_again_until_some_have_come() -> None:
    left = [problem(503, "ledger_unavailable"), problem(429, "queue_full")]
    asked: list[bytes] = []

    def broken() -> Iterator[bytes]:
        yield b"one\n"
        raise httpx2.ReadError("connection lost")

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.content)
        if len(asked) == 1:
            raise httpx2.ConnectError("refused")
        return left.pop() if left else httpx2.Response(200, content=broken())

    request = LinesRequest(collection="logs")
    with client(answer) as verso, pytest.raises(Unavailable, match="connection lost"):
        list(verso.lines(request))
    assert (len(asked), len(set(asked))) == (4, 1)
    late = client(lambda _: problem(503, "not_ready"), patience_s=0.05)
    with late as verso, pytest.raises(NotReady):
        list(verso.lines(request))


def test_nan_in_a_vector_is_refused_before_it_is_sent() -> None:
    with client(lambda _: httpx2.Response(200)) as verso, pytest.raises(VectorInvalid):
        verso.search(vector=[float("nan")])


def test_a_wait_that_takes_too_long_is_given_up() -> None:
    running = {**JOB, "status": "running"}
    with client(lambda _: httpx2.Response(200, json=running)) as verso, pytest.raises(NotReady):
        verso.wait("j1", timeout_s=0.05)


@pytest.mark.parametrize(
    ("timeout_s", "asked"), [(90.0, "wait=20"), (10.0, "wait=8"), (2.0, "wait=1"), (1.0, None)]
)
async def test_a_poll_waits_less_than_the_client_does_for_a_byte(
    timeout_s: float, asked: str | None
) -> None:
    seen: list[str | None] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers.get("prefer"))
        return httpx2.Response(200, json=JOB)

    transport = httpx2.MockTransport(answer)
    with Client("http://verso.test", timeout_s=timeout_s, transport=transport) as verso:
        verso.wait("j1")
    async with AsyncClient("http://v.test", timeout_s=timeout_s, transport=transport) as waiting:
        await waiting.wait("j1")
    assert seen == [asked, asked]


def test_a_job_is_asked_for_a_few_times_a_second_at_most() -> None:
    asked: list[float] = []

    def answer(_: httpx2.Request) -> httpx2.Response:  # at once, as a gateway that stops does
        asked.append(time.monotonic())
        return httpx2.Response(200, json={**JOB, "status": "running"})

    with client(answer) as verso, pytest.raises(NotReady):
        verso.wait("j1", timeout_s=0.6)
    assert 3 <= len(asked) <= 5


def test_events_go_on_where_a_stream_broke() -> None:
    after: list[str | None] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        after.append(request.headers.get("last-event-id"))
        first = 'id: 1-0\nevent: state\ndata: {"status": "running"}\n\n'
        rest = 'id: 2-0\nevent: state\ndata: {"status": "succeeded"}\n\nevent: end\ndata: {}\n\n'
        body = first if len(after) == 1 else rest
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text=body)

    with client(answer) as verso:
        events = list(verso.events("j1"))
    assert [event.id for event in events] == ["1-0", "2-0"]
    assert after == [None, "1-0"]


def test_an_api_key_is_shown_as_a_bearer_token() -> None:
    seen: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers["authorization"])
        return httpx2.Response(200, json={"collections": []})

    transport = httpx2.MockTransport(answer)
    with Client("http://verso.test", api_key="vk_1", transport=transport) as verso:
        verso.collections()
    assert seen == ["Bearer vk_1"]


async def test_the_asynchronous_client_gives_the_same_answers() -> None:
    calls = 0

    def answer(request: httpx2.Request) -> httpx2.Response:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise httpx2.ReadError("connection lost")
        assert json.loads(request.content)["query"] == "a"
        return httpx2.Response(200, json={"hits": []})

    retries = Retries(longest_pause_s=0.01)
    transport = httpx2.MockTransport(answer)
    async with AsyncClient("http://verso.test", transport=transport, retries=retries) as verso:
        assert (await verso.search("a")).hits == ()
    assert calls == 2


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    def parameters(cls: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(cls, inspect.isfunction)
            if not name.startswith("_")
        }

    assert parameters(Client) == parameters(AsyncClient)


def test_a_scrub_that_is_asked_for_is_shown_and_not_followed_as_a_job() -> None:
    state = {
        "number": 2, "running": False, "asked": True, "progress": 1.0, "documents": 3, "sound": 2,
        "repaired": 0, "damaged": 1, "bytes": 9, "unread": 0,
        "damaged_documents": [{"collection": "c", "id": "d"}],
    }  # fmt: skip
    asked: list[tuple[str, str]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append((request.method, request.url.path))
        return httpx2.Response(202 if request.method == "POST" else 200, json=state)

    with client(answer) as verso:
        assert verso.scrub().damaged_documents[0].id == "d"
        assert verso.scrub(now=True).asked
    assert asked == [("GET", "/v1/scrub"), ("POST", "/v1/scrub")]


def test_an_upload_that_is_refused_as_a_whole_stops_no_other() -> None:
    posted = 0

    def answer(request: httpx2.Request) -> httpx2.Response:
        nonlocal posted
        if request.method == "POST":
            posted += 1
            if posted == 1:
                reason = {"code": "metadata_invalid", "detail": "line 1: x", "retryable": False}
                about = {"accepted": 0, "refused": 2, "refusals": [{"id": "a", "error": reason}]}
                shown = {"code": "documents_refused", "detail": "all 2", "retryable": False}
                return httpx2.Response(422, json=shown | about)
            return httpx2.Response(202, json={**JOB, "items": 1})
        rows = [{"id": "c", "chunks": 1}]
        return httpx2.Response(200, json={**JOB, "results": rows, "next_cursor": None})

    with client(answer) as verso:
        report = verso.ingest([Document("1", id="a"), Document("2"), None, Document("3", id="c")])
    assert [(item.id, item.error and item.error.code) for item in report.failed] == [
        ("a", "metadata_invalid"),
        (None, "documents_refused"),
    ]
    assert (report.documents, posted) == (1, 2)


def test_an_upload_whose_every_document_failed_later_is_reported() -> None:
    failed = {"id": "a", "error": {"code": "internal", "detail": "x", "retryable": False}}

    def answer(request: httpx2.Request) -> httpx2.Response:
        job = {**JOB, "items": 1, "ok": 0, "failed": 1, "status": "failed"}
        if request.method == "POST":
            return httpx2.Response(202, json=job)
        return httpx2.Response(200, json={**job, "results": [failed], "next_cursor": None})

    with client(answer) as verso:
        report = verso.ingest([Document("1", id="a")])
    assert [item.id for item in report.failed] == ["a"]


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.Response(301, headers={"location": "https://verso.test/"}),
        httpx2.Response(200, text="<html>It works"),
        httpx2.Response(200, json={"ok": True}),
    ],
)
def test_lines_that_another_server_took_are_not_accepted(answer: httpx2.Response) -> None:
    with client(lambda _: answer, patience_s=0) as verso, pytest.raises(VersoError):
        verso.append_lines(SourceLines("a", 0, 2, b"a\n"), collection="logs")


def test_an_address_without_its_scheme_is_refused_at_once() -> None:
    with Client("verso.test:8080") as verso, pytest.raises(RequestInvalid, match="http://"):
        verso.collections()


def test_an_answer_that_cannot_be_unpacked_is_unavailable() -> None:
    answer = httpx2.Response(
        200, headers={"content-encoding": "gzip"}, stream=httpx2.ByteStream(b"a")
    )
    with client(lambda _: answer, patience_s=0) as verso, pytest.raises(Unavailable):
        verso.collections()


@pytest.mark.filterwarnings("error")
def test_a_mode_may_be_named_as_a_string() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert json.loads(request.content)["mode"] == "dense"
        return httpx2.Response(200, json={"hits": []})

    with client(answer) as verso:
        mode: Any = "dense"
        assert verso.search("a", mode=mode).hits == ()
