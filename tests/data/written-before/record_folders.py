"""Record two data folders: `python record_folders.py FOLDER`.

One platform is stopped in good order, with work of every state in its ledger; one is ended by
SIGKILL while it works. FOLDER is a new folder for both; ``stopped.*`` and ``killed.*`` are written
beside this file: the archive of the data folder, and what a reader has to find in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import redis
from before import (
    HERE,
    Recorded,
    assign,
    old,
    other_space,
    sample,
    shipped,
    variant,
)

WAIT = "wait=60"
ASYNC = "respond-async"
QUIET = {"VERSO_SETTLE_S": "0.1", "VERSO_RAW_GRACE_S": "0", "VERSO_SCRUB_SHARE": "0"}
FULL_DISK = {"VERSO_FREE_FLOOR_MIB": "100000000"}  # every write to the disk waits for room
RECEIVER = "http://127.43.7.15:8417/told"  # where nobody listens while this is recorded
LEFT_OUT = ("logs", "run", "lock", "vectors/lock", "valkey/valkey.conf", "models/.registry.lock")


class Folder:
    """A platform, and what is known of its data folder."""

    def __init__(self, platform: Recorded) -> None:
        self.platform = platform
        self.documents: dict[str, dict[str, bytes]] = {}
        self.expected: dict[str, Any] = {"answers": [], "jobs": {}, "keys": []}

    def create(self, name: str, **settings: str) -> None:
        """Make a collection."""
        answer = self.platform.ask("POST", "/v1/collections", {"name": name, **settings})
        assert answer.status_code == 201, answer.text
        self.documents[name] = {}

    def ingest(self, collection: str, rows: list[dict[str, Any]], **headers: str) -> str:
        """Take documents in and return the job; without headers wait until all are stored."""
        body = {"collection": collection, "documents": rows}
        answer = self.platform.ask("POST", "/v1/ingest", body, **({"Prefer": WAIT} | headers))
        found = answer.json()
        assert answer.status_code == (200 if not headers else 202), found
        assert headers or found["failed"] == 0, found
        for row in rows:
            text = row["text"].encode() if "text" in row else base64.b64decode(row["text_base64"])
            self.documents[collection][row["id"]] = text
        return str(found["id"])

    def delete(self, collection: str, document: str, **headers: str) -> str:
        """Delete a document and return the job."""
        path = f"/v1/documents/{document}?collection={collection}"
        answer = self.platform.ask("DELETE", path, **headers)
        assert answer.status_code in (200, 202), answer.text
        del self.documents[collection][document]
        return str(answer.headers["Verso-Job-Id"])

    def job(self, name: str, job: str, status: str | None = None) -> None:
        """Note a job as it looks now, or as soon as it has a status."""
        path = f"/v1/jobs/{job}"
        self.platform.until(
            lambda: status in (None, self.platform.get(path)["status"]), seconds=300
        )
        self.expected["jobs"][name] = self.platform.get(path)

    def answer(self, name: str, method: str, path: str, body: object = None) -> Any:
        """Note what a question is answered, to be answered the same later."""
        answer = self.platform.ask(method, path, body, Prefer=WAIT)
        assert answer.status_code == 200, (name, answer.text)
        content = answer.json()
        row = {"name": name, "method": method, "path": path, "body": body, "answer": content}
        self.expected["answers"].append(row)
        return content

    def embed(self, key: str, text: str, **headers: str) -> str:
        """Embed a text under an idempotency key, to be asked for again; returns the job."""
        body = json.dumps({"texts": [text]})
        answer = self.platform.ask(
            "POST", "/v1/embed", body.encode("ascii"), Idempotency_Key=key, **headers
        )
        job = str(answer.raise_for_status().json()["id"])
        self.expected["keys"].append({"key": key, "body": body, "job": job})
        return job

    def retried(self, job: str, *, errors: int = 1) -> bool:
        """Whether a job's first slice waits after so many errors that may pass."""
        with self.platform.redis() as ledger:
            had, state = ledger.hmget(f"verso:slice:{job}.0", "errs", "st")
        return int(had or 0) >= errors and state == b"queued"

    def write(self, name: str) -> None:
        """Write the archive and what it holds."""
        self.expected["documents"] = {
            collection: {
                document: {"bytes": len(text), "blake2b": hashlib.blake2b(text).hexdigest()[:32]}
                for document, text in sorted(documents.items())
            }
            for collection, documents in sorted(self.documents.items())
        }
        text = json.dumps(self.expected, indent=1, sort_keys=True, ensure_ascii=True)
        (HERE / f"{name}.json").write_text(text + "\n")
        data = self.platform.data
        for path in LEFT_OUT:
            shutil.rmtree(data / path) if (data / path).is_dir() else (data / path).unlink(True)
        for link in [path for path in data.rglob("*") if path.is_symlink()]:
            link.unlink()  # to shipped artifacts and heads, made again by every start
        target = HERE / f"{name}.tar.xz"
        tar = ["tar", "--sparse", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]
        subprocess.run([*tar, "-cf", str(target), "-I", "xz -9e", "-C", str(data), "."], check=True)


def renamed(rows: list[dict[str, Any]], prefix: str) -> list[dict[str, Any]]:
    """Return sample documents with short ids that need no escaping in a URL."""
    return [
        {**one, "id": f"{prefix}-{number}", "metadata": {"kind": one["metadata"]["kind"]}}
        for number, one in enumerate(rows)
    ]


def odd() -> list[dict[str, Any]]:
    """Texts that are easily changed on their way."""
    texts = {"bytes": b"\xff\xfe\xfd\x00 \x81", "ends": b"one\r\ntwo\n\r three\t \n", "empty": b"",
             "emoji": "\U0001f469\u200d e\u0301 \u2603".encode(), "spaces": b" " * 700}  # fmt: skip
    return [
        {"id": f"odd-{name}", "text_base64": base64.b64encode(text).decode()}
        for name, text in texts.items()
    ]


def made_up(prefix: str) -> list[dict[str, Any]]:
    """Make texts of the tiny artifact's own world: its n-gram model and its decoder win there."""
    texts = json.loads(old(
        "import json, random\nfrom verso_training import tiny\n"
        "dice = random.Random(5)\n"
        "words = sorted({word for words in tiny.WORDS.values() for word in words})\n"
        "few = [' '.join(dice.sample(words, 6)) for _ in range(8)]\n"
        "many = [' '.join(dice.choices(words, k=140)) for _ in range(3)]\n"
        "lines = [tiny.line(dice, template=n) for n in range(8)]\n"
        "print(json.dumps(few + many + lines))"
    ))  # fmt: skip
    return [{"id": f"{prefix}-{number}", "text": text} for number, text in enumerate(texts)]


def fill(f: Folder) -> None:
    """Make collections of all settings and fill them."""
    hybrid = {"search": "hybrid"}
    f.create("books")
    f.create("lines", precision="int8", **hybrid)
    f.create("kept", text_policy="both", **hybrid)
    f.create("small", precision="int8", text_policy="both")
    f.create("moved", precision="int8")
    f.create("recoded")
    f.create("again")
    f.create("gone")
    f.create("queued")
    books = renamed(sample({"books": 14, "factbook": 4}), "book")
    f.ingest("books", [*books, *odd(), *made_up("made-up")])
    lines = renamed(sample({"lines": 60, "checks": 12}), "line")
    for number, one in enumerate(lines):
        one["metadata"] |= {"n": number, "even": number % 2 == 0, "part": number / 8}
    f.ingest("lines", [*lines, *made_up("made-up")])
    f.ingest("kept", renamed(sample({"checks": 10, "books": 4}), "kept"))
    f.ingest("small", renamed(sample({"lines": 16}), "small"))
    f.ingest("moved", renamed(sample({"books": 20}), "moved"))
    f.ingest("recoded", renamed(sample({"factbook": 3, "lines": 9}), "recoded"))
    f.ingest("queued", renamed(sample({"lines": 6}), "there"))
    f.ingest("again", renamed(sample({"lines": 3}), "again"))
    assert f.platform.ask("DELETE", "/v1/collections/again").status_code == 200
    f.create("again", precision="int8")
    f.ingest("again", renamed(sample({"books": 3}), "again"))
    # written twice, the second time otherwise; deleted; deleted and written again
    f.ingest("books", [{"id": "book-1", "text": books[2]["text"], "metadata": {"again": True}}])
    f.delete("books", "book-3")
    f.delete("lines", "line-7")
    f.delete("lines", "line-8")
    f.ingest("lines", [lines[8]])


def finish_jobs(f: Folder) -> None:
    """Have jobs end in several ways and keep their results, one of them in a file."""
    platform = f.platform
    texts = [one["text"] for one in sample({"lines": 4})]
    f.job("embedded", f.embed("recorded-embed", texts[0], Prefer=WAIT), "succeeded")
    answer = platform.ask("POST", "/v1/embed", {"texts": texts}, Prefer=WAIT)
    job = answer.json()["id"]
    f.job("embedded, in a file", job, "succeeded")
    assert list((platform.data / "results").glob(f"*/{job}/*")), "expected a file"
    body: dict[str, Any] = {"collection": "lines", "query": "a", "rerank": "nothing"}
    assert platform.ask("POST", "/v1/search", body, Prefer=WAIT).status_code == 404
    f.job("failed", platform.get("/v1/jobs?status=failed")["jobs"][0]["id"], "failed")
    rows = [{"id": "book-1"}, {"id": "a\n", "text": "a"}, {"id": "small-99", "text": "one more"}]
    body = {"collection": "small", "documents": rows}
    answer = platform.ask("POST", "/v1/ingest", body, Prefer=WAIT)
    f.documents["small"]["small-99"] = b"one more"
    f.job("ingested, some rejected", answer.json()["id"], "succeeded")
    body = {"collection": "lines", "method": "templates", "limit": 3}
    answer = platform.ask("POST", "/v1/cluster", body, Prefer=WAIT)
    f.job("clustered", answer.headers["Verso-Job-Id"], "succeeded")


def other_codec(f: Folder, artifact: Path) -> None:
    """Fit a codec to a collection and serve it for a while: one of two codecs, one coded again."""
    platform = f.platform
    models = platform.data / "models"
    command = [sys.executable, "-m", "verso_client", "--url", str(platform.http.base_url)]
    command += ["train", "decoder", "--on", "lines", "--artifact", str(artifact)]
    subprocess.run([*command, "--out", str(models / "second")], check=True)
    assign(models, "canary", "second", share="1.0")
    served = "second"

    def serves() -> bool:
        [worker] = platform.get("/v1/registry")["workers"]
        return bool((worker["artifact"]["stable"] or {}).get("name") == served)

    platform.until(
        lambda: platform.get("/v1/registry")["workers"][0]["artifact"]["canary"] is not None
    )
    platform.ask("POST", "/v1/registry/promote", {}).raise_for_status()
    platform.until(serves)
    f.ingest("lines", renamed(sample({"lines": 70})[60:], "second"))
    migrate(f, "recoded")
    platform.ask("POST", "/v1/registry/rollback", {}).raise_for_status()
    served = "tiny"
    platform.until(serves)


def migrate(f: Folder, collection: str) -> None:
    path = f"/v1/collections/{collection}/migrate"
    answer = f.platform.ask("POST", path, {"artifact": "current"}, Prefer=WAIT)
    assert answer.status_code == 200, answer.text
    f.platform.until(lambda: f.platform.get(path)["stage"] == "done")


def dead_letters(f: Folder, artifact: Path, crash_file: Path) -> None:
    """Have three ingests die: of a collection that is gone, of a full disk, of crashes."""
    platform = f.platform
    platform.start(artifact, **QUIET, **FULL_DISK)
    gone = f.ingest("gone", [{"id": "lost", "text": "its collection is gone"}], Prefer=ASYNC)
    platform.until(lambda: f.retried(gone))
    assert platform.ask("DELETE", "/v1/collections/gone", Prefer=WAIT).status_code == 200
    del f.documents["gone"]
    rows = renamed(sample({"books": 3}), "letter")
    full = f.ingest("queued", rows, Prefer=ASYNC)
    f.job("dead: gone", gone, "dead")
    f.job("dead: full disk", full, "dead")
    platform.stop()

    path = f"{Path('tests/chaos/crash').resolve()}:{os.environ['PYTHONPATH']}"
    crashing = {"CRASH_FILE": str(crash_file), "PYTHONPATH": path, "VERSO_LEASE_S": "2"}
    platform.start(artifact, **QUIET, **crashing)
    crash_file.write_text("patches are made, not committed")
    crashed = f.ingest("queued", [{"id": "shot", "text": "killed its workers"}], Prefer=ASYNC)

    def dead() -> bool:
        if not crash_file.exists():
            crash_file.write_text("patches are made, not committed")
        return bool(platform.get(f"/v1/jobs/{crashed}")["status"] == "dead")

    platform.until(dead)
    crash_file.unlink()
    f.job("dead: crashes", crashed, "dead")
    platform.stop()


def held_texts(f: Folder, artifact: Path) -> None:
    """Leave texts in the ledger: of verified documents within the grace, and of unverified ones."""
    platform = f.platform
    ten_years = str(10 * 365 * 86400)
    platform.start(artifact, **{**QUIET, "VERSO_RAW_GRACE_S": ten_years, "VERSO_SCRUB_SHARE": "1"})
    f.ingest("books", renamed(sample({"books": 16})[14:], "graced"))
    platform.verified("books")
    platform.until(lambda: platform.get("/v1/scrub")["state"] == "ended")  # also the recent walk
    platform.stop()
    platform.start(artifact, **{**QUIET, "VERSO_SETTLE_S": "600"})
    f.ingest("kept", renamed(sample({"checks": 13})[10:], "unverified"))
    f.ingest("lines", renamed(sample({"lines": 73})[70:], "unverified"))
    stats = platform.get("/v1/collections/lines")
    assert stats["documents"] - stats["verified"] == 3, stats


def ask(f: Folder) -> None:
    """Note what reads and searches answer; nothing that follows changes these collections."""
    query = "kernel stack trace of a crashed task"

    def search(name: str, **body: Any) -> Any:
        return f.answer(f"search: {name}", "POST", "/v1/search", {"limit": 5, **body})

    search("float16 dense", collection="books", query="a poem about snow and stone walls")
    search("int8 hybrid", collection="lines", query=query)
    search("int8 sparse", collection="lines", query=query, mode="sparse")
    search("float16 hybrid", collection="kept", query="package check with errors")
    search("int8 dense", collection="small", query=query, with_text=False)
    search("of a migrated collection", collection="moved", query="the old house")
    search("of one coded again", collection="recoded", query=query)
    search("of one made again", collection="again", query="the old house")
    search(
        "filtered", collection="lines", query=query, mode="dense",
        filter={"metadata": {"even": True, "kind": ["line"]}, "time_gte": 1.5e9, "time_lt": 1.9e9},
    )  # fmt: skip
    search("more like a document", collection="lines", id="line-3")
    search("more like a record", collection="books", id="book-0#0")
    search("reranked", collection="lines", query=query, rerank="alike", rerank_from=8)
    heads = {"head": ["kinds-tokens"], "collection": "lines", "ids": ["line-1", "line-2"]}
    f.answer("classify", "POST", "/v1/classify", heads)
    question = {"question": "what was the fault", "collection": "lines", "limit": 4}
    f.answer("answer", "POST", "/v1/answer", question)
    f.answer("heads", "GET", "/v1/heads")
    f.answer("registry", "GET", "/v1/registry")
    f.answer("webhooks", "GET", "/v1/webhooks")
    f.answer("collections", "GET", "/v1/collections")
    for name in ("moved", "recoded"):
        f.answer(f"migration: {name}", "GET", f"/v1/collections/{name}/migrate")
    codecs: set[str] = set()
    for name in f.documents:
        if name != "queued":
            stats = f.answer(f"stats: {name}", "GET", f"/v1/collections/{name}")
            codecs |= stats["codecs"].keys()
    assert codecs == {"raw", "zstd", "ngram", "neural", "segmented", "mixture"}, codecs
    for name, document in ("books", "book-1"), ("books", "odd-bytes"), ("lines", "line-3"):
        path = f"/v1/documents/{document}?collection={name}"
        f.answer(f"document: {document}", "GET", path)


def wait_in_line(f: Folder, artifact: Path) -> None:
    """Leave work in the ledger: in retry, leased, queued, cancelled, expired; a scrub under way."""
    platform = f.platform
    settings = {"VERSO_LEASE_S": "600", "VERSO_SCRUB_SHARE": "0.02", "VERSO_SETTLE_S": "600"}
    platform.start(artifact, **{**QUIET, **FULL_DISK, **settings})
    platform.ask("POST", "/v1/scrub").raise_for_status()
    platform.until(lambda: platform.get("/v1/scrub")["running"])
    platform.until(lambda: platform.get("/v1/scrub")["documents"] > 0)
    retried = f.ingest("queued", renamed(sample({"books": 2}), "retried"), Prefer=ASYNC)
    platform.until(lambda: f.retried(retried, errors=6))  # and now waits for half a minute
    webhook = f.expected["webhook"]["id"]

    def embed(text: str, **headers: str) -> str:
        body = {"texts": [text]}
        answer = platform.ask("POST", "/v1/embed", body, Prefer=ASYNC, **headers)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    # A worker that has just had work waits for more: what comes next is given to it at once.
    platform.ask("POST", "/v1/embed", {"texts": ["warm"]}, Prefer=WAIT).raise_for_status()
    worker = platform.process("verso_worker")
    worker.suspend()
    leased = f.embed("recorded-queued", "leased", Prefer=ASYNC, Verso_Webhook=webhook)
    others = {f"embed {n}": embed(f"text {n}", Priority=f"u={n}") for n in range(6)}
    lines = renamed(sample({"lines": 150})[73:], "queued")
    ingested = f.ingest("queued", lines, Prefer=ASYNC, Verso_Webhook=webhook)
    again = [{"id": "there-0", "text": "written again"}, {"id": "queued-0", "text": "and again"}]
    f.ingest("queued", again, Prefer=ASYNC)
    deleted = f.delete("queued", "there-1", Prefer=ASYNC)
    answer = platform.ask("POST", "/v1/collections", {"name": "later"}, Prefer=ASYNC)
    f.documents["later"] = {}
    cancelled, expired = embed("cancelled"), embed("expired", Verso_Deadline="1")
    platform.ask("DELETE", f"/v1/jobs/{cancelled}").raise_for_status()
    platform.until(lambda: platform.get(f"/v1/jobs/{expired}")["status"] == "expired")
    jobs = {"retried": retried, "leased": leased, "ingest": ingested, "delete": deleted, **others}
    for name, job in {**jobs, "create": answer.json()["id"]}.items():
        f.job(f"open: {name}", job)
    f.job("cancelled", cancelled, "cancelled")
    f.job("expired", expired, "expired")
    f.answer("scrub", "GET", "/v1/scrub")
    f.answer("dead letters", "GET", "/v1/dead-letters")
    with platform.redis() as ledger:
        waiting = {name: ledger.zcard(f"verso:{name}") for name in ("hooks", "dead", "drop")}
        waiting["ready"] = ledger.zcard("verso:ready:bulk")
        waiting["leased"] = ledger.zcard("verso:leased:interactive")
    assert all(waiting.values()), waiting
    platform.stop(suspended=worker)


def lift_times_to_live(data: Path) -> None:
    """Have nothing in a stopped ledger expire: it is to be read at any time.

    Slices, idempotency keys and names of deleted collections live for days. Values stay as they
    are; the append-only file gets one PERSIST for each such key.
    """
    server = old("from verso_standalone.valkey import find_program\nprint(find_program())")
    socket = data.parent / "lift.sock"
    flags = ["--port", "0", "--unixsocket", str(socket), "--dir", str(data / "valkey")]
    flags += ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--databases", "2"]
    with subprocess.Popen([server, *flags], stdout=subprocess.DEVNULL) as process:
        while not socket.exists():
            time.sleep(0.1)
        ledger = redis.Redis(unix_socket_path=str(socket))
        lifted = sum(int(ledger.persist(key)) for key in ledger.scan_iter(count=1000))
        assert lifted, "expected keys that expire"
        process.terminate()


def stopped(root: Path, artifact: Path) -> None:
    """Record the folder of a platform that was stopped in good order."""
    f = Folder(Recorded(root / "stopped", 18_712))
    platform = f.platform
    platform.start(artifact, **QUIET, VERSO_RESULT_INLINE_BYTES="2048")
    platform.until(lambda: len(platform.get("/v1/heads")["heads"]) == 3)
    fill(f)
    finish_jobs(f)
    other_codec(f, artifact)
    for name in f.documents:
        platform.verified(name)
    platform.stop()
    platform.start(other_space(root / "other/third"), **QUIET)
    migrate(f, "moved")
    f.ingest("moved", [{"id": "moved-late", "text": "written after the move"}])
    f.create("third")
    f.ingest("third", renamed(sample({"lines": 4}), "third"))
    platform.stop()
    dead_letters(f, artifact, root / "crash")
    held_texts(f, artifact)
    made = platform.ask("POST", "/v1/webhooks", {"url": RECEIVER})
    f.expected["webhook"] = made.raise_for_status().json()
    told = platform.ask(
        "POST", "/v1/embed", {"texts": ["told"]}, Prefer=WAIT, Verso_Webhook=made.json()["id"]
    )
    f.job("told of", told.json()["id"], "succeeded")
    ask(f)
    platform.stop()
    wait_in_line(f, artifact)
    lift_times_to_live(platform.data)
    f.write("stopped")


def killed(root: Path, artifact: Path) -> None:
    """Record the folder of a platform that was killed at work: every process at one moment."""
    f = Folder(Recorded(root / "killed", 18_713))
    platform = f.platform
    settings = {"VERSO_SETTLE_S": "0.3", "VERSO_RAW_GRACE_S": "1", "VERSO_SCRUB_SHARE": "1"}
    platform.start(artifact, **settings)
    f.create("still", precision="int8", search="hybrid")
    f.create("dense")
    f.create("both", precision="int8", search="hybrid", text_policy="both")
    rows = [*made_up("made-up"), *renamed(sample({"lines": 280, "books": 40}), "n")]
    f.ingest("still", rows[:40])
    f.ingest("dense", rows[:30])
    f.ingest("both", rows[:30])
    for name in f.documents:
        platform.verified(name)
    search = {"collection": "still", "query": "kernel stack trace of a crashed task", "limit": 5}
    f.answer("search: hybrid", "POST", "/v1/search", search)
    f.answer("search: dense", "POST", "/v1/search", {**search, "mode": "dense"})
    variant(platform.data / "models/second", 2)
    assign(platform.data / "models", "stable", "second")
    platform.until(
        lambda: platform.get("/v1/registry")["workers"][0]["artifact"]["stable"]["name"] == "second"
    )
    platform.ask("POST", "/v1/scrub").raise_for_status()
    jobs = {
        "dense": f.ingest("dense", rows[30:], Prefer=ASYNC),
        "both": f.ingest("both", rows[30:200], Prefer=ASYNC),
        "rewritten": f.ingest(
            "dense", [{"id": f"n-{n}", "text": f"again {n}"} for n in range(0, 60, 3)], Prefer=ASYNC
        ),
        "deleted": f.delete("both", "n-1", Prefer=ASYNC),
    }
    texts = [one["text"] for one in rows[:120]]
    answer = platform.ask("POST", "/v1/embed", {"texts": texts}, Prefer=ASYNC)
    jobs["embedded"] = answer.json()["id"]
    answer = platform.ask("POST", "/v1/collections/still/migrate", {}, Prefer=WAIT)
    assert answer.status_code == 200, answer.text
    platform.until(lambda: platform.get(f"/v1/jobs/{jobs['dense']}?limit=0")["slices_done"] >= 2)
    f.expected["jobs"] = {name: {"id": job} for name, job in jobs.items()}
    seen = {name: platform.get(f"/v1/jobs/{job}?limit=0")["status"] for name, job in jobs.items()}
    seen["migration"] = platform.get("/v1/collections/still/migrate")["stage"]
    platform.stop(signal.SIGKILL)
    assert seen["dense"] == "running", seen
    f.expected["killed_while"] = seen
    f.write("killed")


def main() -> None:
    root = Path(sys.argv[1]).resolve()
    root.mkdir(parents=True)
    artifact = shipped(root / "shipped", "alike", "kinds-tokens", "qa")
    stopped(root, artifact)
    killed(root, artifact)


if __name__ == "__main__":
    main()
