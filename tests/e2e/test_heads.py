"""Classify, answer, score, rerank through the running platform; heads taken up while it serves."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import httpx2
import numpy as np
import psutil
import pytest

from verso_client import Client, Document
from verso_core import heads, registry
from verso_core.heads import Calibration, Portion, Relevance
from verso_core.jobs import SearchMode
from verso_core.jobs.search import DENSE_SHARE
from verso_core.registry import Channel

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform

LINES = {
    "request": "2026-03-04T05:06:07Z INFO gateway[812]: request 0badcafe finished in 31 ms",
    "retry": "2026-03-04T05:06:07Z WARN keeper: worker 3 of 8 timed out, retry in 4 s",
    "frame": "\tat org.example.worker.queue.fetch(queue.java:77)",
}
FILLER = "The queue loads every token that the gateway checked before. "
QUESTION = "what was the fault"


@pytest.fixture(scope="module")
def http(headed: Platform) -> Iterator[httpx2.Client]:
    """A client of a platform with heads."""
    with httpx2.Client(base_url=headed.url, timeout=120) as client:
        yield client


def ask(http: httpx2.Client, path: str, /, **body: Any) -> dict[str, Any]:
    answer = http.post(path, json=body, headers={"Prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture(scope="module")
def reads_the_end(http: httpx2.Client, platform: Platform) -> str:
    """The head ``kinds`` as one that reads the last chunk where a request does not say."""
    return published(http, platform, "kinds", name="at-the-end", chunk=Portion.LAST)


def published(http: httpx2.Client, platform: Platform, of: str, **changes: Any) -> str:
    """Publish a changed copy of a head and return its name once it is served."""
    models = platform.data / "models"
    [source] = (models / "heads" / of).iterdir()
    head = heads.named(heads.load(source).head.model_copy(update=changes))
    folder = shutil.copytree(source, models / "heads" / head.name / head.version)
    (folder / heads.HEAD_NAME).write_text(head.model_dump_json())
    registry.assign(models, Channel.STABLE, head.version, head=head.name)
    deadline = time.monotonic() + 240
    while http.get(f"/v1/heads/{head.name}").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return head.name


@pytest.fixture
def stored(verso: Client, collection: str) -> str:
    documents = [Document(text, id=name) for name, text in LINES.items()]
    # Characters of several bytes before the place: offsets of bytes and of characters differ.
    long = "\U0001f469\u200d e\u0301\n" + FILLER * 30 + LINES["retry"]
    assert verso.ingest([*documents, Document(long, id="long")], collection=collection).failed == ()
    return collection


def test_texts_and_stored_records_get_the_same_labels(http: httpx2.Client, stored: str) -> None:
    for head in ("kinds", "kinds-tokens"):
        by_text = ask(http, "/v1/classify", head=head, texts=list(LINES.values()))["results"]
        by_id = ask(http, "/v1/classify", head=head, collection=stored, ids=list(LINES))["results"]
        for found in (by_text, by_id):
            assert [item["heads"][0]["label"] for item in found] == list(LINES)
            assert not any(item["heads"][0]["abstained"] for item in found)
        for one, other in zip(by_text, by_id, strict=True):
            assert one["heads"][0]["confidence"] == pytest.approx(
                other["heads"][0]["confidence"], abs=0.02
            )


def test_the_chunks_that_are_read_can_be_chosen(
    http: httpx2.Client, verso: Client, collection: str, reads_the_end: str
) -> None:
    """Three kinds of lines, each more than a chunk of them: what is read decides the label."""
    text = "".join(f"{line}\n" * 24 for line in LINES.values())
    assert verso.ingest([Document(text, id="long")], collection=collection).failed == ()
    count = verso.stats(collection).chunks
    assert count >= len(LINES)
    names = ["kinds", "kinds-tokens", reads_the_end]
    by_id = {"head": names, "collection": collection}
    by_text = {"head": names, "texts": [text]}

    def scores(**body: Any) -> list[dict[str, float]]:
        [item] = ask(http, "/v1/classify", **body)["results"]
        return [{one["label"]: one["score"] for one in head["scores"]} for head in item["heads"]]

    def alike(one: list[dict[str, float]], other: list[dict[str, float]], *, off: float) -> bool:
        return all(a == pytest.approx(b, abs=off) for a, b in zip(one, other, strict=True))

    found = {one: scores(**by_id, ids=["long"], chunk=one, top_k=1000) for one in Portion}
    first, last = (scores(**by_id, ids=[f"long#{n}"], top_k=1000) for n in (0, count - 1))
    assert alike(found[Portion.FIRST], first, off=1e-4)
    assert alike(found[Portion.LAST], last, off=1e-4)
    for portion, stored in found.items():
        assert alike(scores(**by_text, chunk=portion, top_k=1000), stored, off=0.05)
    assert [max(one, key=one.__getitem__) for one in found[Portion.FIRST]] == ["request"] * 3
    assert [max(one, key=one.__getitem__) for one in found[Portion.LAST]] == ["frame"] * 3
    silent = scores(**by_id, ids=["long"], top_k=1000)
    assert alike(silent[:1], found[Portion.FIRST][:1], off=1e-4)
    assert alike(silent[2:], found[Portion.LAST][2:], off=1e-4)
    assert not alike(silent[:1], silent[2:], off=0.05)
    kinds, tokens, end = scores(**by_text, top_k=1000)
    assert [max(one, key=one.__getitem__) for one in (kinds, tokens, end)] == [
        "request", "request", "frame",
    ]  # fmt: skip
    assert http.get(f"/v1/heads/{reads_the_end}").json()["stable"]["chunk"] == "last"


def ending(last: str, *, lines: int) -> str:
    """A text of ``lines`` lines of no label, and one that has one at its end."""
    return "\n".join([FILLER.strip()] * lines + [LINES[last]])


@pytest.mark.parametrize("search", [SearchMode.HYBRID, SearchMode.DENSE])
def test_a_stored_document_of_many_chunks_gets_the_labels_of_its_text(
    http: httpx2.Client,
    verso: Client,
    search: Literal[SearchMode.HYBRID, SearchMode.DENSE],
) -> None:
    """A head of documents reads the vectors of all chunks, and the terms as stored or restored."""
    texts = [ending(last, lines=n) for n in (1, 20, 60, 200) for last in ("request", "retry")]
    name = f"endings-{search}"
    verso.create_collection(name, search=search)
    documents = [Document(text, id=f"d{n}") for n, text in enumerate(texts)]
    assert verso.ingest(documents, collection=name).failed == ()
    assert verso.stats(name).chunks > 3 * len(texts)
    asked = {"head": "endings", "top_k": 1000}
    by_text = ask(http, "/v1/classify", **asked, texts=texts)["results"]
    ids = [document.id for document in documents]
    by_id = ask(http, "/v1/classify", **asked, collection=name, ids=ids)["results"]
    for n, (one, other) in enumerate(zip(by_text, by_id, strict=True)):
        [one], [other] = one["heads"], other["heads"]
        assert one["label"] == ("gateway/request", "worker/retry")[n % 2]
        scores = [{at["label"]: at["score"] for at in it["scores"]} for it in (one, other)]
        assert scores[0] == pytest.approx(scores[1], abs=0.02)
        assert one["confidence"] == pytest.approx(other["confidence"], abs=0.02)
        assert isinstance(one["shifted"], bool)


def test_labels_that_people_check_correct_the_confidence(
    http: httpx2.Client, verso: Client
) -> None:
    """Labels that are called wrong are accepted no more, until they are called right."""
    texts = [f"{line} {n}" for n in range(15) for line in (LINES["request"], LINES["retry"])]
    wrong = ["frame"] * len(texts)
    before = ask(http, "/v1/classify", head="kinds", texts=texts)["results"]
    taken = verso.feedback("kinds", wrong, texts=texts)
    assert [one.right for one in taken] == [False] * len(texts)
    assert [one.label for one in taken] == [item["heads"][0]["label"] for item in before]
    after = ask(http, "/v1/classify", head="kinds", texts=texts, accept_error=0.2)["results"]
    assert all(item["heads"][0]["abstained"] for item in after)
    assert all(item["heads"][0]["confidence"] < 0.2 for item in after)
    right = [one.label for one in taken]
    assert all(one.right for one in verso.feedback("kinds", right, texts=texts))
    again = ask(http, "/v1/classify", head="kinds", texts=texts, accept_error=0.2)["results"]
    assert not any(item["heads"][0]["abstained"] for item in again)
    unknown = http.post("/v1/feedback", json={"head": "kinds", "texts": ["a"], "labels": ["?"]})
    assert unknown.json()["code"] == "request_invalid"


def test_labels_that_people_checked_survive_a_restart_of_the_worker(
    headed: Platform, verso: Client
) -> None:
    """A worker that never saw the labels withholds what they call wrong."""
    texts = [f"{line} once {n}" for n in range(20) for line in (LINES["request"], LINES["retry"])]
    sure = verso.classify("kinds", texts=texts, accept_error=0.2)
    right = [one.heads[0].label for one in sure]
    assert None not in right
    verso.feedback("kinds", ["frame"] * len(texts), texts=texts)
    before = headed.kill("worker")
    try:
        after = verso.classify("kinds", texts=texts, accept_error=0.2)
        assert headed.pid("worker") != before
        assert [one.heads[0].abstained for one in after] == [True] * len(texts)
    finally:
        verso.feedback("kinds", [str(label) for label in right], texts=texts)
    again = verso.classify("kinds", texts=texts, accept_error=0.2)
    assert [one.heads[0].label for one in again] == right


def test_several_heads_signals_and_abstention(http: httpx2.Client) -> None:
    asked = {"head": ["kinds", "kinds-tokens"], "texts": [LINES["retry"], "\x01 qqq"], "top_k": 2}
    sure, odd = ask(http, "/v1/classify", **asked, signals=True, accept_error=0.05)["results"]
    assert [one["head"] for one in sure["heads"]] == ["kinds", "kinds-tokens"]
    for one in sure["heads"] + odd["heads"]:
        assert (one["label"] is None) == one["abstained"]
        assert 0 <= one["confidence"] <= 1
        assert len(one["scores"]) == 2
        assert {"softmax", "calibrated", "energy"} <= one["signals"].keys()
    assert {"mahalanobis", "knn"} <= sure["heads"][0]["signals"].keys()
    assert sure["heads"][0]["label"] == "retry"
    assert sure["heads"][0]["signals"]["knn"] > odd["heads"][0]["signals"]["knn"]


def test_what_cannot_be_classified_fails_alone(http: httpx2.Client, stored: str) -> None:
    items = ask(http, "/v1/classify", head="kinds", collection=stored, ids=["retry", "gone", "a\n"])
    good, gone, bad = items["results"]
    assert good["heads"][0]["label"] == "retry"
    assert gone["error"]["code"] == "document_unknown"
    assert bad["error"]["code"] == "id_invalid"


def test_an_answer_is_a_slice_of_the_given_context(http: httpx2.Client) -> None:
    contexts = ["\U0001f469\u200d e\u0301: " + LINES["retry"], LINES["frame"], FILLER * 40]
    found = ask(http, "/v1/answer", question=QUESTION, contexts=contexts)
    best = found["answers"][0]
    assert found["answered"] is True
    assert best["context"] == 0
    assert best["text"] == "timed out"
    text = contexts[best["context"]]
    assert text[best["start"] : best["end"]] == best["text"]
    assert text.encode()[best["start_byte"] : best["end_byte"]].decode() == best["text"]
    units = text.encode("utf-16-le")[2 * best["start_utf16"] : 2 * best["end_utf16"]]
    assert units.decode("utf-16-le") == best["text"]
    evidence = best["evidence"]
    assert best["text"] in text[evidence["start"] : evidence["end"]]
    assert best["score"] > best["null_score"]


def test_a_cancelled_answer_frees_the_engine(headed: Platform, http: httpx2.Client) -> None:
    """Of two that are cancelled while they are read, the engine does not read both whole."""
    engine = psutil.Process(headed.pid("engine"))
    body = {"question": QUESTION, "context": "a b c d e f " * 20_000}

    def spent_s() -> float:
        times = engine.cpu_times()
        return float(times.user + times.system)

    def works() -> bool:
        """Whether a thread of the engine runs, or would if a busy machine had a core for it."""
        for path in Path(f"/proc/{engine.pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):  # the thread has ended
                if path.read_text().rpartition(")")[2].split()[0] == "R":
                    return True
        return False

    def at_rest() -> float:
        """Wait until the engine does nothing for a second, and return what it has spent."""
        idle, deadline = 0, time.monotonic() + 240
        while idle < 20:
            assert time.monotonic() < deadline
            time.sleep(0.05)
            idle = 0 if works() else idle + 1
        return spent_s()

    start = at_rest()
    ask(http, "/v1/answer", **body)
    whole_s = at_rest() - start
    start = at_rest()
    later = {"Prefer": "respond-async"}
    jobs = [http.post("/v1/answer", json=body, headers=later).json()["id"] for _ in range(2)]
    while spent_s() - start < whole_s / 8:
        time.sleep(0.01)
    engine.suspend()  # however fast it is, the worker notices before it has read them
    try:
        for job in jobs:
            assert http.delete(f"/v1/jobs/{job}").json()["status"] == "cancelled"
        time.sleep(10)  # renewals are a second apart
    finally:
        engine.resume()
    assert at_rest() - start < whole_s


def test_the_sentence_of_an_answer_moves_its_null_score(
    http: httpx2.Client, verso: Client, platform: Platform
) -> None:
    relevance = Relevance(weight=2.0, usual=0.1)
    moved = published(
        http, platform, "qa", name="qa-moved", calibration=Calibration(relevance=relevance)
    )
    body = {"question": QUESTION, "contexts": [FILLER + LINES["retry"], LINES["frame"]]}
    plain, found = (ask(http, "/v1/answer", head=name, **body) for name in ("qa", moved))
    sentences = [
        body["contexts"][one["context"]][one["evidence"]["start"] : one["evidence"]["end"]]
        for one in found["answers"]
    ]
    vectors = np.array([one.embedding for one in verso.embed([QUESTION, *sentences])])
    nulls = {one["context"]: one["null_score"] for one in plain["answers"]}
    [first] = nulls  # the best parts are of one context, whose best sentence corrects all of them
    expected = relevance.corrected(nulls[first], float(vectors[1] @ vectors[0]))
    assert [one["context"] for one in found["answers"]] == [first] * len(found["answers"])
    assert [one["null_score"] for one in found["answers"]] == pytest.approx(
        [expected] * len(found["answers"]), abs=1e-3
    )
    assert abs(expected - nulls[first]) > 0.1
    margins = [one["score"] - one["null_score"] for one in found["answers"]]
    assert margins == sorted(margins, reverse=True)


def test_found_records_have_a_threshold_of_their_own(
    http: httpx2.Client, platform: Platform, stored: str
) -> None:
    calibration = Calibration(null_threshold=1e6, found_null_threshold=-1e6)
    strict = published(http, platform, "qa", name="qa-strict", calibration=calibration)
    given = ask(http, "/v1/answer", head=strict, question=QUESTION, context=LINES["retry"])
    found = ask(http, "/v1/answer", head=strict, question=QUESTION, collection=stored, limit=5)
    assert (given["answered"], given["null_threshold"]) == (False, 1e6)
    assert (found["answered"], found["null_threshold"]) == (True, -1e6)
    assert given["answers"], "what was not sure enough is told all the same"


def test_no_answer_is_an_answer(http: httpx2.Client) -> None:
    found = ask(http, "/v1/answer", question=QUESTION, context=LINES["frame"])
    assert found["answered"] is False
    assert found["contexts"] == 1


def test_a_collection_is_searched_rebuilt_and_read(
    http: httpx2.Client, verso: Client, stored: str
) -> None:
    found = ask(http, "/v1/answer", question=QUESTION, collection=stored, limit=20, top_k=4)
    assert found["answered"] is True
    assert found["failed"] == []
    assert {"retry", "long"} <= {answer["document"] for answer in found["answers"]}
    for answer in found["answers"]:
        record = verso.get(answer["id"], collection=stored).data
        document = verso.get(answer["document"], collection=stored).data
        text = answer["text"].encode()
        assert record[answer["start_byte"] : answer["end_byte"]] == text
        assert document[answer["document_start_byte"] : answer["document_end_byte"]] == text


def test_pairs_are_scored_in_both_shapes_and_reranked(http: httpx2.Client) -> None:
    other = LINES["retry"].replace("worker 3", "worker 5")
    pairs = [[LINES["retry"], other], [LINES["retry"], LINES["frame"]]]
    own = ask(http, "/v1/score", pairs=pairs)["data"]
    common = ask(http, "/v1/score", text_1=LINES["retry"], text_2=[other, LINES["frame"]])["data"]
    assert [one["score"] for one in own] == pytest.approx([one["score"] for one in common])
    assert own[0]["score"] > own[1]["score"]
    turned = ask(http, "/v1/score", pairs=[pair[::-1] for pair in pairs])["data"]
    assert [one["score"] for one in turned] == pytest.approx([one["score"] for one in own])
    for task, head in (("similarity", "alike"), ("duplicate", "alike"), ("relevance", "pairs")):
        by_task, by_head = (ask(http, "/v1/score", head=h, pairs=pairs) for h in (task, head))
        assert [one["score"] for one in by_task["data"]] == pytest.approx(
            [one["score"] for one in by_head["data"]]
        )
        assert by_task["model"] == task
    for path in ("/v1/rerank", "/v2/rerank"):
        ranked = ask(
            http, path, model="verso", query=LINES["retry"],
            documents=[LINES["frame"], {"text": other}], top_n=1, return_documents=True,
        )  # fmt: skip
        [best] = ranked["results"]
        assert best["index"] == 1
        assert best["document"] == {"text": other}


def test_a_long_text_is_ranked_by_its_best_sentence(http: httpx2.Client, headed: Platform) -> None:
    other = LINES["retry"].replace("worker 3", "worker 5")
    long = "\n".join([*[LINES["frame"]] * 9, other, *[LINES["frame"]] * 9])
    for head in ("pairs", "alike"):
        ranked = ask(
            http, "/v1/rerank", head=head, query=LINES["retry"],
            documents=[LINES["frame"], long, other],
        )["results"]  # fmt: skip
        scores = {one["index"]: one["relevance_score"] for one in ranked}
        assert scores[1] == pytest.approx(scores[2], abs=1e-4)
        assert scores[1] > scores[0]
        place = next(one["evidence"] for one in ranked if one["index"] == 1)
        assert long[place["start"] : place["end"]] == other
        with headed.client() as verso:
            same = verso.rerank(LINES["retry"], [LINES["frame"], long, other], head=head)
        assert [one.index for one in same] == [one["index"] for one in ranked]
        assert same[1].relevance_score == pytest.approx(ranked[1]["relevance_score"], abs=1e-4)


def test_a_search_is_reranked(http: httpx2.Client, stored: str) -> None:
    """By the head alone, by the search alone, and by both."""
    query = {"collection": stored, "query": LINES["retry"], "limit": 9}
    plain = ask(http, "/v1/search", **query)["hits"]
    found = {
        share: ask(
            http, "/v1/search", **query, rerank="pairs", rerank_from=20, rerank_share=share
        )["hits"]
        for share in (0.0, 0.4, 1.0)
    }  # fmt: skip
    scores = [hit["rerank_score"] for hit in found[1.0]]
    assert len(scores) > 2
    assert scores == sorted(scores, reverse=True)
    assert [hit["id"] for hit in found[0.0]] == [hit["id"] for hit in plain]
    by_default = ask(http, "/v1/search", **query, rerank="pairs", rerank_from=20)["hits"]
    assert [hit["id"] for hit in by_default] == [hit["id"] for hit in found[0.4]]
    assert by_default[0]["text"] is not None
    few = ask(http, "/v1/search", **query, rerank="pairs", rerank_from=1)
    assert [hit.get("rerank_score") is None for hit in few["hits"][:2]] == [False, True]


def test_a_search_explains_its_scores(http: httpx2.Client, verso: Client) -> None:
    """Dense, sparse, hybrid and reranked: the parts that a search has, and no others."""
    name = "explained"
    verso.create_collection(name, search=SearchMode.HYBRID)
    verso.ingest([Document(text, id=key) for key, text in LINES.items()], collection=name)
    query = {"collection": name, "query": LINES["retry"]}
    hybrid = {"dense", "sparse", "fused", "scale", "score"}

    def parts(**options: Any) -> list[dict[str, Any]]:
        plain = ask(http, "/v1/search", **query, **options)["hits"]
        hits = ask(http, "/v1/search", **query, **options, explain=True)["hits"]
        assert [{k: v for k, v in hit.items() if k != "explain"} for hit in hits] == plain
        return [hit["explain"] | {"score": hit["score"]} for hit in hits]

    assert all(one == {"dense": one["score"], "score": one["score"]} for one in parts(mode="dense"))
    assert all(
        one == {"sparse": one["score"], "score": one["score"]} for one in parts(mode="sparse")
    )
    both = parts(mode="hybrid")
    assert both[0]["fused"] == both[0]["score"]
    assert all(one.keys() == hybrid for one in both)
    for one in both:
        lowest, highest, heaviest = (one["scale"][key] for key in ("lowest", "highest", "heaviest"))
        near = (one["dense"] - lowest) / (highest - lowest)
        said = one["sparse"] / heaviest
        assert one["fused"] == pytest.approx(
            DENSE_SHARE * near + (1 - DENSE_SHARE) * said, abs=1e-4
        )
    first, *rest = parts(rerank="pairs", rerank_from=1, rerank_share=0.25)
    assert first.keys() == hybrid | {"rerank_score", "rerank_share"}
    assert first["rerank_share"] == 0.25
    assert all(one.keys() == hybrid for one in rest)
    same = verso.search(LINES["retry"], collection=name, mode=SearchMode.DENSE, explain=True).hits
    assert [hit.explain and hit.explain.dense for hit in same] == [hit.score for hit in same]
    verso.delete_collection(name)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("classify", {"head": "nothing", "texts": ["a"]}, 404, "head_unknown"),
        ("classify", {"head": "qa", "texts": ["a"]}, 404, "head_unknown"),
        ("classify", {"head": "kinds"}, 422, "request_invalid"),
        ("classify", {"head": ["kinds", "kinds"], "texts": ["a"]}, 422, "request_invalid"),
        ("classify", {"head": "kinds", "ids": ["a"], "collection": "none"}, 404,
         "collection_unknown"),
        ("classify", {"head": "kinds", "texts": ["a"], "accept_error": 1e-6}, 422,
         "request_invalid"),
        ("answer", {"question": "what", "context": " \n"}, 422, "request_invalid"),
        ("answer", {"question": " ", "context": "a"}, 422, "request_invalid"),
        ("answer", {"question": "what", "context": "a", "collection": "default"}, 422,
         "request_invalid"),
        ("answer", {"question": "what " * 500, "context": "a"}, 422, "question_too_long"),
        ("answer", {"question": "what", "context": "a", "head": "kinds"}, 404, "head_unknown"),
        ("score", {"pairs": [["a", "b"]], "text_1": "a", "text_2": "b"}, 422, "request_invalid"),
        ("score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, 422, "request_invalid"),
        ("rerank", {"query": "a", "documents": [{"title": "b"}]}, 422, "request_invalid"),
        ("search", {"query": "a", "rerank": "nothing"}, 404, "head_unknown"),
        ("search", {"query": "a", "rerank": "pairs", "rerank_share": 1.5}, 422, "request_invalid"),
    ],
)  # fmt: skip
def test_bad_input_has_a_code(
    http: httpx2.Client, path: str, body: dict[str, Any], status: int, code: str
) -> None:
    answer = http.post(f"/v1/{path}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_heads_are_described_by_name(http: httpx2.Client) -> None:
    head = http.get("/v1/heads/kinds").json()
    assert head["stable"]["labels"]
    assert head["canary"] is None
    assert http.get("/v1/heads/nothing").json()["code"] == "head_unknown"


class Asker(threading.Thread):
    """Asks one head, again and again and without a second try, until told to stop."""

    def __init__(self, url: str, head: str) -> None:
        super().__init__()
        self._url = url
        self._head = head
        self.over = threading.Event()
        self.versions: list[str] = []
        self.failed: list[str] = []

    def run(self) -> None:
        body = {"head": self._head, "texts": [LINES["retry"]]}
        with httpx2.Client(base_url=self._url, timeout=120) as client:
            while not self.over.is_set():
                answer = client.post("/v1/classify", json=body, headers={"Prefer": "wait=60"})
                found = answer.json()
                if answer.status_code == 200 and found["results"][0]["heads"][0]["label"]:
                    self.versions.append(found["results"][0]["heads"][0]["version"])
                else:
                    self.failed.append(answer.text)

    def await_version(self, version: str) -> None:
        """Wait until an answer is of this version."""
        deadline = time.monotonic() + 240
        seen = len(self.versions)
        while version not in self.versions[seen:]:
            assert time.monotonic() < deadline, f"{version} never answered: {self.failed}"
            time.sleep(0.05)


def await_agreement(verso: Client, head: str) -> None:
    """Wait until a canary is known to have said what the stable version says, in as long."""
    deadline = time.monotonic() + 240
    while (found := verso.registry().heads[head].comparison) is None:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert found.agreed == found.pairs > 0
    assert found.differed == 0
    assert min(found.p95_ms_canary or 0, found.p95_ms_stable or 0) > 0


def test_a_head_is_promoted_and_taken_back_while_it_is_asked(
    verso: Client, headed: Platform
) -> None:
    """No process is restarted, and no request fails."""
    models = headed.data / "models"
    [source] = (models / "heads" / "kinds").iterdir()
    head = heads.load(source).head
    again = heads.named(head.model_copy(update={"metrics": dict(head.metrics) | {"again": 1.0}}))
    folder = shutil.copytree(source, source.with_name(again.version))
    (folder / heads.HEAD_NAME).write_text(again.model_dump_json())
    parts = [headed.pid(part) for part in ("worker", "engine", "gateway")]
    asker = Asker(headed.url, "kinds")
    asker.start()
    try:
        asker.await_version(head.version)
        registry.assign(models, Channel.CANARY, again.version, head="kinds", share=0.5)
        asker.await_version(again.version)
        asker.await_version(head.version)
        await_agreement(verso, "kinds")
        verso.promote("kinds")
        assert verso.registry().heads["kinds"].comparison is None
        deadline = time.monotonic() + 240
        while head.version in asker.versions[-20:]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        verso.rollback("kinds")
        asker.await_version(head.version)
    finally:
        asker.over.set()
        asker.join()
        registry.assign(models, Channel.STABLE, head.version, head="kinds")
        shutil.rmtree(folder)
    assert asker.failed == []
    assert [headed.pid(part) for part in ("worker", "engine", "gateway")] == parts


def test_a_head_that_cannot_be_served_leaves_the_last_one_serving(
    http: httpx2.Client, platform: Platform
) -> None:
    models = platform.data / "models"
    [good] = (path for path in (models / "heads" / "kinds").iterdir() if path.is_dir())
    bad = good.with_name("0" * 16)
    shutil.copytree(good, bad)
    (bad / "head.onnx").write_bytes(b"no graph")
    registry.assign(models, Channel.STABLE, bad.name, head="kinds")
    try:
        deadline = time.monotonic() + 240
        while "error" not in (state := http.get("/v1/heads/kinds").json())["stable"]:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert state["stable"]["error"]["code"] == "head_invalid", json.dumps(state)
        [item] = ask(http, "/v1/classify", head="kinds", texts=[LINES["retry"]])["results"]
        assert item["heads"][0]["label"] == "retry"
        assert item["heads"][0]["version"] == good.name
    finally:
        registry.assign(models, Channel.STABLE, good.name, head="kinds")
        shutil.rmtree(bad)
