"""The main job over HTTP: texts go in, are found, and come back byte for byte."""

from __future__ import annotations

import math
import unicodedata
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx2
import pytest

from verso_client import AsyncClient, Client, Document
from verso_core.errors import CollectionExists, CollectionUnknown, DocumentUnknown
from verso_core.jobs import Filter, Precision, Status, TextPolicy

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform

STRANGE = {
    "empty": b"",
    "one-byte": b"x",
    "nul": b"a\x00b\x00\x00",
    "invalid-utf8": b"\xff\xfe\x80 caf\xc3\xa9 \xed\xa0\x80",
    "crlf": b"one\r\ntwo\r\n\r\nthree\r",
    "tabs": b"\tat java.lang.Thread.run(Thread.java:750)\n\t... 12 more\n",
    "emoji": "👩‍👩‍👧‍👦 e\u0301 \u202eevil\u202c 𝔘𝔫𝔦 \ufeff".encode(),
    "not-normalised": unicodedata.normalize("NFD", "Ångström naïve").encode(),
    "spaces": b"   leading and trailing   \n\n\n",
    "long-line": b"0123456789abcdef" * 4096,
    "special-words": b"[CLS] [SEP] [PAD] [MASK] [UNK] <s> </s> <|endoftext|>",
    "numbers": b"0x7f3a9c 10.0.0.1 6f1ed002ab5595859014ebf0951522d9 1,234,567.89e-12",
}


def test_every_kind_of_bytes_comes_back_exactly(
    platform: Platform, verso: Client, collection: str
) -> None:
    report = verso.ingest(
        [Document(data, id=name) for name, data in STRANGE.items()], collection=collection
    )
    assert report.failed == ()
    assert report.documents == len(STRANGE)
    assert report.bytes_text == sum(map(len, STRANGE.values()))
    assert platform.read_all(collection, list(STRANGE)) == STRANGE
    platform.await_verified(collection, len(STRANGE))
    assert platform.read_all(collection, list(STRANGE)) == STRANGE
    for name, data in STRANGE.items():
        assert verso.get(name, collection=collection).data == data


def test_a_text_longer_than_a_chunk_comes_back_whole_and_in_parts(
    verso: Client, collection: str, lines: Callable[[int], list[Document]]
) -> None:
    text = "\n".join(str(document.text) for document in lines(60)).encode()
    verso.ingest([Document(text, id="long")], collection=collection)
    stored = verso.get("long", collection=collection)
    assert stored.data == text
    assert stored.chunks is not None
    assert stored.chunks > 1
    parts = [verso.get(f"long#{n}", collection=collection).data for n in range(stored.chunks)]
    assert b"".join(parts) == text


def test_the_bytes_themselves_can_be_asked_for(
    platform: Platform, verso: Client, collection: str
) -> None:
    verso.ingest([Document(b"\xff\x00raw", id="a/b c")], collection=collection)
    answer = httpx2.get(
        f"{platform.url}/v1/documents/a%2Fb%20c",
        params={"collection": collection},
        headers={"Accept": "application/octet-stream"},
        timeout=60,
    )
    assert answer.content == b"\xff\x00raw"


def test_a_document_finds_itself_and_metadata_and_time_narrow_a_search(
    verso: Client, collection: str, lines: Callable[[int], list[Document]]
) -> None:
    documents = lines(40)
    verso.ingest(documents, collection=collection)
    best = verso.search(str(documents[17].text), collection=collection).hits[0]
    assert best.data == str(documents[17].text).encode()
    assert best.score == pytest.approx(1.0, abs=1e-2)
    assert best.metadata == documents[17].metadata

    one_host = Filter(metadata={"host": "host-3"})
    found = verso.search("session", collection=collection, limit=40, filter=one_host).hits
    assert {hit.document for hit in found} == {f"line/{n}" for n in range(40) if n % 7 == 3}

    two_hosts = Filter(metadata={"host": ["host-3", "host-4"], "even": True})
    found = verso.search("session", collection=collection, limit=40, filter=two_hosts).hits
    expected = {f"line/{n}" for n in range(40) if n % 7 in (3, 4) and n % 2 == 0}
    assert {hit.document for hit in found} == expected

    start = 1_795_262_400.0
    window = Filter(time_gte=start + 5, time_lt=start + 8)
    found = verso.search("session", collection=collection, limit=40, filter=window).hits
    assert {hit.document for hit in found} == {"line/5", "line/6", "line/7"}


def test_a_search_by_record_or_vector_finds_the_same_as_by_text(
    verso: Client, collection: str, lines: Callable[[int], list[Document]]
) -> None:
    documents = lines(12)
    verso.ingest(documents, collection=collection)
    [embedded] = verso.embed([str(documents[5].text)])
    assert math.isclose(sum(x * x for x in embedded.embedding), 1.0, rel_tol=1e-3)
    by_vector = verso.search(vector=embedded.embedding, collection=collection, limit=3).hits
    by_id = verso.search(id="line/5", collection=collection, limit=3).hits
    assert by_vector[0].document == "line/5"
    assert {hit.document for hit in by_id} >= {"line/5"} or by_id[0].score > 0
    without = verso.search("session", collection=collection, with_text=False).hits
    assert all(hit.text is None and hit.text_base64 is None for hit in without)


def test_a_guess_from_a_bare_vector_is_marked_as_a_guess(verso: Client) -> None:
    [embedded] = verso.embed(["kernel: eth0: link is up"])
    for beam in (1, 3):
        [guess] = verso.guess([embedded.embedding], beam=beam, max_tokens=16)
        assert guess.error is None
        assert guess.exact is False
        assert 0.0 <= guess.confidence <= 1.0
        assert guess.log_probability <= 0.0


def test_a_document_given_again_replaces_the_first_and_a_deleted_one_is_gone(
    verso: Client, collection: str
) -> None:
    verso.ingest([Document("first", id="d")], collection=collection)
    verso.ingest([Document("second", id="d")], collection=collection)
    assert verso.get("d", collection=collection).data == b"second"
    assert [hit.data for hit in verso.search("first", collection=collection).hits] == [b"second"]
    verso.delete("d", collection=collection)
    with pytest.raises(DocumentUnknown):
        verso.get("d", collection=collection)
    assert verso.search("second", collection=collection).hits == ()
    assert verso.stats(collection).documents == 0


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("policy", list(TextPolicy))
def test_every_kind_of_collection_gives_the_exact_text_back(
    platform: Platform,
    verso: Client,
    lines: Callable[[int], list[Document]],
    precision: Precision,
    policy: TextPolicy,
) -> None:
    name = f"kind-{precision}-{policy}"
    verso.create_collection(name, precision=precision, text_policy=policy)
    documents = lines(20)
    verso.ingest(documents, collection=name)
    platform.await_verified(name, 20)
    texts = {str(document.id): str(document.text).encode() for document in documents}
    assert platform.read_all(name, list(texts)) == texts
    stats = verso.stats(name)
    assert (stats.documents, stats.points, stats.chunks) == (20, stats.chunks, stats.points)
    bits = {Precision.FLOAT16: 16, Precision.INT8: 8, Precision.INT4: 4}[precision]
    assert stats.bytes_vectors == stats.chunks * 384 * bits // 8
    assert sum(share.records for share in stats.codecs.values()) == stats.chunks
    other = Precision.INT8 if precision is Precision.FLOAT16 else Precision.FLOAT16
    with pytest.raises(CollectionExists):
        verso.create_collection(name, precision=other, text_policy=policy)
    verso.delete_collection(name)
    with pytest.raises(CollectionUnknown):
        verso.get("line/1", collection=name)


def test_the_same_request_twice_is_one_job(
    platform: Platform, verso: Client, collection: str
) -> None:
    body = {"collection": collection, "documents": [{"id": "a", "text": "once"}]}
    headers = {"Idempotency-Key": f'"{uuid.uuid4()}"', "Prefer": "wait=60"}
    with httpx2.Client(base_url=platform.url, timeout=120) as http:
        first = http.post("/v1/ingest", json=body, headers=headers)
        again = http.post("/v1/ingest", json=body, headers=headers)
        assert (first.status_code, again.status_code) == (200, 200)
        assert first.json()["id"] == again.json()["id"]
        assert again.headers["idempotency-replayed"] == "true"
        body["documents"] = [{"id": "a", "text": "another"}]
        other = http.post("/v1/ingest", json=body, headers=headers)
    assert other.status_code == 422
    assert other.json()["code"] == "idempotency_conflict"
    assert verso.get("a", collection=collection).data == b"once"


def test_events_tell_a_job_from_its_beginning_to_its_end(
    verso: Client, collection: str, lines: Callable[[int], list[Document]]
) -> None:
    [job] = verso.submit(lines(200), collection=collection)
    events = list(verso.events(job.id))
    assert events[-1].data["status"] == Status.SUCCEEDED
    done = [event.data["done"] for event in events]
    assert done == sorted(done)
    again = list(verso.events(job.id, after=events[0].id))
    assert [event.id for event in again] == [event.id for event in events[1:]]
    assert verso.wait(job.id).ok == 200


async def test_the_asynchronous_client_does_the_whole_job(
    platform: Platform, collection: str, lines: Callable[[int], list[Document]]
) -> None:
    documents = lines(30)
    async with AsyncClient(platform.url) as verso:
        report = await verso.ingest(documents, collection=collection)
        assert report.documents == 30
        texts = await verso.reconstruct([str(d.id) for d in documents], collection=collection)
        assert [text.data for text in texts] == [str(d.text).encode() for d in documents]
        hits = (await verso.search(str(documents[4].text), collection=collection)).hits
        assert hits[0].document == "line/4"
        [job] = await verso.submit(documents, collection=collection)
        events = [event async for event in verso.events(job.id)]
        assert events[-1].data["status"] == Status.SUCCEEDED


def test_a_cancelled_job_ends_and_says_so(
    verso: Client, collection: str, lines: Callable[[int], list[Document]]
) -> None:
    [job] = verso.submit(lines(2000), collection=collection)
    verso.cancel(job.id)
    ended = verso.wait(job.id, timeout_s=300)
    assert ended.status is Status.CANCELLED
    assert ended.ok < 2000
