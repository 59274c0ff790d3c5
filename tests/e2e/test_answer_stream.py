"""Answers as they come: hits, spans, and last the same answer as without a stream."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import psutil
import pytest
from tests.e2e.conftest import Platform

from verso_client import AsyncClient, Client, Document
from verso_core.errors import CollectionUnknown, HeadUnknown
from verso_core.jobs import Status

QUESTION = "what timed out"
LINE = "2026-03-04T05:06:07Z WARN keeper: worker {} of 8 timed out, retry in {} s"
TEXTS = [LINE.format(n, n + 1) + " " + "and so on " * 70 for n in range(8)]


@pytest.fixture(scope="module")
def stored(headed: Platform) -> Iterator[str]:
    """A collection of lines."""
    with headed.client() as verso:
        verso.create_collection("asked")
        documents = [Document(text, id=f"line/{n}") for n, text in enumerate(TEXTS)]
        verso.ingest(documents, collection="asked")
        yield "asked"
        verso.delete_collection("asked")


def events(headed: Platform, body: dict[str, Any], **headers: str) -> list[tuple[str, Any]]:
    """Return the events of an answer."""
    url = f"{headed.url}/v1/answer"
    with (
        httpx2.Client(timeout=120) as http,
        http.sse(url, method="POST", json=body, headers=headers) as source,
    ):
        assert source.response.headers["content-type"].startswith("text/event-stream")
        return [(event.event, json.loads(event.data)) for event in source]


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what two answers to one question have in common."""
    return {name: one for name, one in answer.items() if name not in ("job_id", "timings_ms")}


def test_hits_come_first_then_spans_then_the_same_answer(headed: Platform, stored: str) -> None:
    body = {"question": QUESTION, "collection": stored, "limit": 32}  # more than there are records
    found = events(headed, body)
    names = [name for name, _ in found]
    assert names[0] == "hits"
    assert names[-1] == "end"
    assert set(names[1:-1]) == {"spans"}
    [hits] = [data["hits"] for name, data in found if name == "hits"]
    assert {hit["document"] for hit in hits} == {f"line/{n}" for n in range(8)}
    assert all(hit["text"] in TEXTS[int(hit["document"][5:])] for hit in hits)
    spans = [data for name, data in found if name == "spans"]
    assert [one["read"] for one in spans] == sorted(one["read"] for one in spans)
    assert spans[-1]["read"] == spans[-1]["contexts"] == len(hits)
    plain = httpx2.post(
        f"{headed.url}/v1/answer", json=body, headers={"Prefer": "wait=60"}, timeout=120
    ).json()
    last = found[-1][1]
    assert last.keys() == plain.keys()
    assert [one["text"] for one in last["answers"]] == [one["text"] for one in plain["answers"]]
    seen = {(one.get("id"), one["text"]) for data in spans for one in data["answers"]}
    assert {(one["id"], one["text"]) for one in last["answers"]} <= seen


def test_the_key_stream_does_what_the_header_does(headed: Platform) -> None:
    body = {"question": QUESTION, "contexts": TEXTS}
    by_key = events(headed, body | {"stream": True}, Accept="application/json")
    by_header = events(headed, body)
    assert [name for name, _ in by_key] == [name for name, _ in by_header]
    assert by_key[0] == ("hits", {"hits": []})
    assert without_times(by_key[-1][1]) == without_times(by_header[-1][1])
    assert len([name for name, _ in by_key if name == "spans"]) > 1


def test_what_is_refused_is_refused_before_the_stream(headed: Platform) -> None:
    body = {"question": QUESTION, "collection": "nothing"}
    answer = httpx2.post(
        f"{headed.url}/v1/answer", json=body, headers={"Accept": "text/event-stream"}, timeout=60
    )
    assert (answer.status_code, answer.json()["code"]) == (404, "collection_unknown")


def test_what_fails_later_ends_the_stream_with_its_error(headed: Platform) -> None:
    found = events(headed, {"question": QUESTION, "contexts": ["a"], "head": "nothing"})
    assert found[-1][0] == "error"
    assert found[-1][1]["code"] == "head_unknown"


@contextmanager
def resumed(worker: psutil.Process) -> Iterator[None]:
    """Let a worker go on in the end."""
    try:
        yield
    finally:
        worker.resume()


def test_a_reader_who_goes_away_cancels_the_work(headed: Platform) -> None:
    contexts = [f"{n} " + "word " * 1500 for n in range(30)]
    body = {"question": QUESTION, "contexts": contexts, "stream": True}
    worker = psutil.Process(headed.pid("worker"))
    with (
        httpx2.Client(timeout=120) as http,
        http.sse(f"{headed.url}/v1/answer", method="POST", json=body) as source,
    ):
        job_id = source.response.headers["verso-job-id"]
        assert next(iter(source)).event == "hits"
        worker.suspend()  # its work is under way when the reader goes
    with headed.client() as verso, resumed(worker):
        until = time.monotonic() + 240
        while (status := verso.job(job_id).status) is not Status.CANCELLED:
            assert not status.terminal
            assert time.monotonic() < until
            time.sleep(0.1)


async def test_both_clients_yield_the_events(headed: Platform, stored: str) -> None:
    with headed.client() as verso:
        found = list(verso.answer_events(QUESTION, collection=stored, limit=8))
        whole = verso.answer(QUESTION, collection=stored, limit=8)
    async with AsyncClient(headed.url) as client:
        same = [one async for one in client.answer_events(QUESTION, collection=stored, limit=8)]
    for events_found in (found, same):
        assert events_found[0].hits is not None
        assert any(one.spans is not None for one in events_found)
        last = events_found[-1].end
        assert last is not None
        assert [one.data for one in last.answers] == [one.data for one in whole.answers]


def test_the_client_raises_what_a_stream_ends_in(headed: Platform) -> None:
    with Client(headed.url) as verso:
        with pytest.raises(HeadUnknown):
            list(verso.answer_events(QUESTION, contexts=["a"], head="nothing"))
        with pytest.raises(CollectionUnknown):
            list(verso.answer_events(QUESTION, collection="nothing"))
