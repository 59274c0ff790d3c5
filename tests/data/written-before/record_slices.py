"""Record payload and result of slices of every kind: `python record_slices.py FOLDER`.

FOLDER is a new folder for the platform; ``slices.jsonl.xz`` is written beside this file.
"""

from __future__ import annotations

import base64
import json
import lzma
import signal
import sys
from pathlib import Path
from typing import Any

from before import HERE, Recorded, decoded, old, other_space, sample, shipped, variant

WAIT = "wait=60"
COLLECTIONS = ("default", "labelled", "plain", "words")
LINES = {
    "request": "2026-03-04T05:06:07Z INFO gateway[812]: request 0badcafe finished in 31 ms",
    "retry": "2026-03-04T05:06:07Z WARN keeper: worker 3 of 8 timed out, retry in 4 s",
    "frame": "\tat org.example.worker.queue.fetch(queue.java:77)",
}
FILLER = "The queue loads every token that the gateway checked before. "
LABELLED = {
    "disk": "kernel: sd{n}: I/O error, sector {n}{n}, disk failed to read block",
    "login": "sshd[{n}]: session opened for user u{n} by (uid=0)",
}
DAMAGE = """
import sys
from dataclasses import replace
import redis
from verso_core.record import Entry, bucket_of
ledger = redis.Redis(port=int(sys.argv[1]), password=sys.argv[2])
uid = ledger.hget("verso:uids", sys.argv[3]).decode()
name = f"verso:docs:{uid}:{bucket_of(sys.argv[4], buckets=4096)}"
entry = Entry.unpack(ledger.hget(name, sys.argv[4]))
first, *rest = entry.records
wrong = replace(first, checksum=bytes([first.checksum[0] ^ 1]) + first.checksum[1:])
ledger.hset(name, sys.argv[4], replace(entry, records=(wrong, *rest)).pack())
"""


class Recorder:
    """Asks a platform, and notes which slices each request made."""

    def __init__(self, platform: Recorded) -> None:
        self.platform = platform
        self.rows: dict[str, dict[str, Any]] = {}

    def note(
        self, name: str, kind: str, method: str, path: str, body: object = None, **headers: str
    ) -> Any:
        """Ask for something and keep the slices of this kind that it made."""
        seen = len(self.platform.frames()[0])
        answer = self.platform.ask(method, path, body, **({"Prefer": WAIT} | headers))
        content = answer.json()
        job = answer.headers.get("Verso-Job-Id")
        assert answer.status_code != 202, (name, content)
        payloads, _ = self.platform.frames()
        new = [
            slice_id for slice_id, frame in list(payloads.items())[seen:]
            if (slice_id.split(".")[0] == job if job else _kind(frame) == kind)
        ]  # fmt: skip
        assert new, (name, answer.status_code, content)
        request = {
            "method": method,
            "path": path,
            "body": body.decode() if isinstance(body, bytes) else body,
            "headers": {key.replace("_", "-"): value for key, value in headers.items()},
        }
        for slice_id in new:
            number = "" if len(new) == 1 else f"-{slice_id.split('.')[1]}"
            self.keep(
                name + number, kind, slice_id,
                request=request, status=answer.status_code, answer=content,
            )  # fmt: skip
        return content

    def found(self, name: str, kind: str, *, most: int = 3, having: str = "") -> None:
        """Keep slices of a kind that no request made: the keeper or the trainer asked for them."""
        chosen = self.ended(kind, having)
        assert chosen, name
        for number, slice_id in enumerate(chosen[:most]):
            self.keep(f"{name}-{number}", kind, slice_id)

    def ended(self, kind: str, having: str) -> list[str]:
        """Return the slices of a kind that have results, the largest results first."""
        payloads, results = self.platform.frames()
        found = [
            slice_id for slice_id, frame in payloads.items()
            if _kind(frame) == kind and having.encode() in frame and slice_id in results
        ]  # fmt: skip
        return sorted(found, key=lambda slice_id: -len(results[slice_id]))

    def keep(self, name: str, kind: str, slice_id: str, **more: Any) -> None:
        """Keep a slice; its result is read at the end, as a caller may be told it before."""
        assert name not in self.rows, name
        self.rows[name] = {"name": name, "kind": kind, "slice": slice_id, **more}

    def write(self, target: Path) -> None:
        """Write all slices that were kept, with what their frames hold."""
        payloads, results = self.platform.frames()
        lines = []
        for row in self.rows.values():
            slice_id = row.pop("slice")
            for part, frame in ("payload", payloads[slice_id]), ("result", results.get(slice_id)):
                row[part] = None if frame is None else base64.b64encode(frame).decode("ascii")
                row[f"{part}_holds"] = None if frame is None else decoded(frame)
            assert row["payload_holds"]["header"]["kind"] == row["kind"], row["name"]
            lines.append(json.dumps(row, sort_keys=True) + "\n")
        data = lzma.compress("".join(lines).encode("ascii"), preset=9 | lzma.PRESET_EXTREME)
        target.write_bytes(data)


def _kind(frame: bytes) -> str:
    return str(decoded(frame)["header"]["kind"])


def documents(count: int) -> list[dict[str, Any]]:
    """Make labelled log lines whose metadata says what they are."""
    return [
        {"id": f"{kind}/{n}", "text": LABELLED[kind].format(n=n), "metadata": {"kind": kind},
         "time": 1_795_262_400.0 + n}
        for n in range(count)
        for kind in (list(LABELLED)[n % 2],)
    ]  # fmt: skip


def collections(r: Recorder) -> None:
    create = ("collection_create", "POST", "/v1/collections")
    r.note("create-default-settings", *create, {"name": "plain"})
    settings = {"precision": "int8", "text_policy": "both", "search": "hybrid"}
    r.note("create-all-settings", *create, {"name": "words", **settings})
    r.note("create-again", *create, {"name": "plain"})
    r.note("create-in-conflict", *create, {"name": "plain", "precision": "int8"})
    r.note("create-labelled", *create, {"name": "labelled"})
    r.note("create-short-lived", *create, {"name": "short-lived"})
    r.note("collection-delete", "collection_delete", "DELETE", "/v1/collections/short-lived")


def ingests(r: Recorder) -> None:
    ingest = ("ingest", "POST", "/v1/ingest")
    texts = [{"id": name, "text": text} for name, text in LINES.items()]
    long = "\U0001f469\u200d e\u0301\n" + FILLER * 30 + LINES["retry"]
    odd = [
        {"id": "bytes", "text_base64": "//79AICB/w=="},
        {"id": "lines", "text": "one\r\ntwo\n\tthree \n"},
        {"id": "empty", "text": ""},
        {"text": "without an id"},
        {"text": "without an id", "metadata": {"host": "a", "n": 7, "share": 0.5, "up": True}},
        {"id": "timed/é ☃", "text": "a text with a time", "time": "2026-11-21T12:00:00+01:00"},
    ]
    wrong = [
        {"id": "retry", "text": "stands earlier"},
        {"id": "control\n", "text": "a"},
        {"id": "record#1", "text": "a"},
        {"id": "nested", "text": "a", "metadata": {"a": {"b": 1}}},
        {"id": "both", "text": "a", "text_base64": "YQ=="},
        {"id": "no-base64", "text_base64": "?"},
        {"id": "surrogate", "text": "a\ud800"},
        {"id": "unknown-key", "text": "a", "labels": []},
        7,
    ]
    given = [*texts, {"id": "long", "text": long}, *odd, *wrong]
    r.note("ingest-good-and-rejected", *ingest, {"collection": "plain", "documents": given})
    rows = [
        {"id": f"w/{one['id']}", "text": one["text"], "metadata": {"kind": one["metadata"]["kind"]},
         **({"time": one["time"]} if "time" in one else {})}
        for one in sample({"lines": 12, "books": 3, "checks": 3})
    ]  # fmt: skip
    r.note("ingest-metadata-and-times", *ingest, {"collection": "words", "documents": rows})
    lines = b'{"id": "nd/1", "text": "a line"}\nnot json\n{"id": "nd/2", "text": "another"}\n'
    r.note(
        "ingest-ndjson", "ingest", "POST", "/v1/ingest?collection=plain", lines,
        Content_Type="application/x-ndjson",
    )  # fmt: skip
    few = [{"text": f"line {n}"} for n in range(70)]
    r.note("ingest-of-two-slices", *ingest, {"collection": "plain", "documents": few})
    r.note("ingest-replaces", *ingest, {
        "collection": "plain", "documents": [{"id": "frame", "text": LINES["frame"] + " again"}],
    })  # fmt: skip
    r.note("ingest-labelled", *ingest, {
        "collection": "labelled", "documents": documents(120),
    })  # fmt: skip
    for name in ("plain", "words", "labelled"):
        r.platform.verified(name)


def vectors(r: Recorder) -> list[float]:
    embed = ("embed", "POST", "/v1/embed")
    found = r.note("embed", *embed, {"texts": ["a disk is full", ""]})
    r.note("embed-base64", *embed, {"texts": ["a disk is full"], "encoding": "base64"})
    r.note("embed-with-rejected", *embed, {"texts": ["a\ud800", "sound", "\udc00"]})
    r.note("embed-openai", "embed", "POST", "/v1/embeddings", {"input": ["a", "b"]})
    long = {"texts": [FILLER * 60]}
    r.note("embed-of-a-long-text", *embed, long, Priority="u=1")
    vector: list[float] = found["results"][0]["embedding"]
    return vector


def searches(r: Recorder, vector: list[float]) -> None:
    def search(name: str, **body: Any) -> None:
        r.note(f"search-{name}", "search", "POST", "/v1/search", {"limit": 4, **body})

    words = {"collection": "words", "query": "kernel stack trace of a crashed task"}
    search("query", collection="plain", query=LINES["retry"])
    search("defaults", collection="plain", query="timed out", limit=10)
    search("without-text", collection="plain", query="timed out", with_text=False)
    search("vector", collection="plain", vector=vector)
    search("vector-of-another-space", collection="plain", vector=[0.5, 0.5])
    search("document", collection="plain", id="long")
    search("record", collection="plain", id="long#1")
    search("unknown-document", collection="plain", id="nobody")
    search("hybrid-by-default", **words)
    search("hybrid", **words, mode="hybrid")
    search("sparse", **words, mode="sparse")
    search("dense", **words, mode="dense")
    search("filter", **words, filter={"metadata": {"kind": ["line", "check"]}})
    search(
        "filter-of-times", **words, mode="dense",
        filter={"metadata": {"kind": "line"}, "time_gte": 1.6e9, "time_lt": 1.8e9},
    )  # fmt: skip
    search("nothing-found", **words, filter={"metadata": {"kind": "no such kind"}})
    search("reranked", collection="plain", query=LINES["retry"], rerank="pairs")
    search("reranked-as-asked", **words, rerank="alike", rerank_from=3, rerank_share=1.0)
    search("reranked-by-an-unknown-head", collection="plain", query="a", rerank="nothing")


def reads(r: Recorder, vector: list[float]) -> None:
    by = ("reconstruct", "POST", "/v1/reconstruct")
    ids = ["retry", "long", "long#0", "bytes", "lines", "empty", "timed/é ☃"]
    r.note("reconstruct-ids", *by, {"collection": "plain", "ids": ids})
    wrong = ["nobody", "long#99", "control\n", "", "retry"]
    r.note("reconstruct-unknown-and-rejected", *by, {"collection": "plain", "ids": wrong})
    r.note("reconstruct-kept-text", *by, {
        "collection": "words", "ids": [f"w/{sample({'lines': 1})[0]['id']}"],
    })  # fmt: skip
    r.note("reconstruct-vectors", *by, {"vectors": [vector, [1.0]], "max_tokens": 8})
    r.note("reconstruct-beam", *by, {"vectors": [vector], "beam": 3, "max_tokens": 6})
    path = "/v1/documents/lines?collection=plain"
    r.note("reconstruct-one-document", "reconstruct", "GET", path)
    path = "/v1/documents/long%231?collection=plain"
    r.note("reconstruct-one-record", "reconstruct", "GET", path)
    delete = "/v1/documents/{}?collection=plain"
    r.note("delete", "delete", "DELETE", delete.format("nd/1"))
    r.note("delete-of-nobody", "delete", "DELETE", delete.format("nd/1"))
    for name in ("plain", "words", "default"):
        r.note(f"stats-{name}", "stats", "GET", f"/v1/collections/{name}")


def clusters(r: Recorder) -> None:
    def cluster(name: str, **body: Any) -> None:
        r.note(f"cluster-{name}", "cluster", "POST", "/v1/cluster", body)

    cluster("templates", collection="labelled", method="templates", since=1_795_262_440.0)
    cluster("dbscan", collection="labelled", representatives=2, limit=3)
    cluster("hdbscan", collection="labelled", method="hdbscan", min_size=4, min_samples=3)
    cluster("of-nothing", collection="default", representatives=0)


def heads(r: Recorder) -> None:
    def classify(name: str, **body: Any) -> None:
        r.note(f"classify-{name}", "classify", "POST", "/v1/classify", body)

    texts = list(LINES.values())
    classify("texts", head="kinds", texts=texts)
    classify("with-rejected", head="kinds-tokens", texts=["a\ud800", LINES["frame"]], top_k=1)
    classify(
        "everything", head=["kinds", "kinds-tokens"], texts=[LINES["retry"], "\x01 qqq"], top_k=2,
        signals=True, accept_error=0.05, chunk="last",
    )  # fmt: skip
    ids = ["retry", "long", "long#0", "nobody", "a\n"]
    classify("stored", head="kinds", collection="plain", ids=ids)
    classify("stored-by-tokens", head="kinds-tokens", collection="plain", ids=ids, chunk="mean")
    classify("by-an-unknown-head", head="nothing", texts=["a"])

    def answer(name: str, **body: Any) -> None:
        body = {"question": "what was the fault", **body}
        r.note(f"answer-{name}", "answer", "POST", "/v1/answer", body)

    answer("contexts", contexts=["\U0001f469\u200d e\u0301: " + texts[1], texts[2], FILLER * 40])
    answer("context", context=texts[2], top_k=1)
    answer("collection", collection="plain", limit=8, top_k=4)
    answer("filter", collection="words", limit=3, filter={"metadata": {"kind": "line"}})
    score = ("score", "POST", "/v1/score")
    r.note("score-pairs", *score, {"pairs": [[texts[1], texts[1][3:]], [texts[1], texts[2]]]})
    r.note("score-texts", *score, {"head": "alike", "text_1": texts[1], "text_2": texts})
    passages = [texts[2], "\n".join([*[texts[2]] * 5, texts[1]])]
    r.note("score-rerank", "score", "POST", "/v1/rerank", {
        "query": texts[1], "documents": passages, "return_documents": True, "top_n": 1,
    })  # fmt: skip
    r.note("heads", "heads", "GET", "/v1/heads")
    r.note("heads-one", "heads", "GET", "/v1/heads/qa")
    r.note("heads-report", "heads", "GET", "/v1/heads/kinds/report")


def training(r: Recorder) -> None:
    made_up = json.loads(old(
        "import json\nfrom tests import made_up\n"
        "print(json.dumps([made_up.squad(), made_up.pairs(), made_up.SETTINGS]))"
    ))  # fmt: skip
    squad, pairs, settings = made_up

    def train(name: str, **body: Any) -> None:
        asked = r.platform.ask("POST", "/v1/train", body)
        job = asked.raise_for_status().json()["id"]
        open_states = ("queued", "running")
        r.platform.until(
            lambda: r.platform.get(f"/v1/jobs/{job}?limit=0")["status"] not in open_states,
            seconds=240,
        )
        found = r.platform.get(f"/v1/jobs/{job}")
        request = {"method": "POST", "path": "/v1/train", "body": body, "headers": {}}
        r.keep(f"train-{name}", "train", f"{job}.0", request=request, status=200, answer=found)

    stored = {"collection": "labelled", "label_key": "kind"}
    train("collection", head="events", source=stored, licence="CC0-1.0")
    train("labels-changed", head="kinds", source=stored)
    small = {"epochs": 2, "rank": 4, "tokens_per_step": 400, "max_tokens": 48, "patience": 1}
    train("collection-tokens", head="words", source={**stored, "limit": 60},
          recipe={"reads": "tokens", "classify": small}, share=0.5)  # fmt: skip
    rows = [{"text": one["text"], "label": one["metadata"]["kind"]} for one in documents(60)]
    train("rows", head="typed", source={"rows": rows}, new_labels=True)
    brief = settings | {"epochs": 1}
    squad["data"] = squad["data"][:30]
    train("squad", head="faults", task="answer", source={"squad": squad}, recipe={"answer": brief})
    train("pairs", head="fits", task="score", source={"pairs": pairs[:60]},
          recipe={"score": {"rate": 4e-3, "rank": 8, "start": "", "epochs": 2}})  # fmt: skip
    r.found("rows", "rows", most=1, having='"texts":false')
    r.found("rows-texts", "rows", most=1, having='"texts":true')
    models = ("models", "POST", "/v1/registry/promote", {"head": "events"})
    r.note("models-show", "models", "GET", "/v1/registry")
    r.note("models-promote", *models)
    r.note("models-rollback", "models", "POST", "/v1/registry/rollback", {"head": "typed"})
    r.note("models-rollback-of-nothing", "models", "POST", "/v1/registry/rollback", {})


def scrubs(r: Recorder, damaged: str) -> None:
    platform = r.platform
    platform.until(lambda: platform.get("/v1/scrub")["state"] == "ended")
    first = platform.get("/v1/scrub")["number"]
    with platform.redis() as ledger:
        options = ledger.connection_pool.connection_kwargs
        old(DAMAGE, str(options["port"]), options["password"], "plain", damaged)
    r.note(
        "search-with-a-damaged-hit", "search", "POST", "/v1/search",
        {"collection": "plain", "query": LINES["request"], "limit": 3},
    )  # fmt: skip
    r.note("reconstruct-damaged", "reconstruct", "POST", "/v1/reconstruct",
           {"collection": "plain", "ids": [damaged]})  # fmt: skip
    platform.ask("POST", "/v1/scrub").raise_for_status()
    platform.until(lambda: platform.get("/v1/scrub")["number"] > first)
    platform.until(lambda: platform.get("/v1/scrub")["state"] == "ended")
    r.found("scrub", "scrub", most=4)


def migrations(r: Recorder, name: str, *, remove: bool) -> None:
    path = f"/v1/collections/{name}/migrate"
    r.note(f"migrate-begin-{name}", "migrate", "POST", path, {"artifact": "current"})
    r.platform.until(lambda: r.platform.get(path)["stage"] in ("done", "blocked"))
    having = f'"collection":"{name}","step":"work"'
    r.found(f"migrate-work-{name}", "migrate", most=2, having=having)
    if remove:
        r.note(f"migrate-remove-{name}", "migrate", "DELETE", path)


def main() -> None:
    root = Path(sys.argv[1]).resolve()
    root.mkdir(parents=True)
    names = ("alike", "kinds", "kinds-tokens", "pairs", "qa")
    artifact = shipped(root / "shipped", *names)
    platform = Recorded(root / "slices", 18_711)
    settings = {"VERSO_SETTLE_S": "0.1", "VERSO_RAW_GRACE_S": "0", "VERSO_SCRUB_SHARE": "1"}
    platform.start(artifact, **settings)
    platform.until(lambda: len(platform.get("/v1/heads")["heads"]) == len(names))
    r = Recorder(platform)
    collections(r)
    ingests(r)
    vector = vectors(r)
    searches(r, vector)
    reads(r, vector)
    clusters(r)
    heads(r)
    scrubs(r, "request")
    training(r)
    r.note("migrate-refused", "migrate", "POST", "/v1/collections/words/migrate", {})
    platform.stop(signal.SIGKILL)
    platform.start(variant(root / "shipped/second", 2), **settings)
    platform.until(lambda: len(r.ended("scrub", '"since"')) == len(COLLECTIONS))
    r.found("scrub-recent", "scrub", most=2, having='"since"')
    migrations(r, "labelled", remove=False)
    platform.stop()
    platform.start(other_space(root / "shipped/third"), **settings)
    migrations(r, "words", remove=True)
    platform.stop()
    r.write(HERE / "slices.jsonl.xz")


if __name__ == "__main__":
    main()
