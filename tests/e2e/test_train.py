"""A user's path: labelled logs go in, a head is trained on them, tried, promoted, taken back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import made_up
from tests.e2e.conftest import Platform

from verso_client import Client, Document, RegistryState, Training
from verso_core import registry
from verso_core.errors import (
    DuplicateId,
    HeadUnknown,
    LabelsChanged,
    RequestInvalid,
    TrainingDataInvalid,
)
from verso_core.heads import Portion
from verso_core.jobs import CollectionKind, Status
from verso_core.registry import Channel

LINES = {
    "disk": "kernel: sd{n}: I/O error, sector {n}{n}, disk failed to read block",
    "login": "sshd[{n}]: session opened for user u{n} by (uid=0)",
}


def labelled(count: int = 240) -> list[Document]:
    """Make log lines whose metadata says what they are."""
    kinds = list(LINES)
    return [
        Document(
            LINES[kind].format(n=n), id=f"{kind}/{n}", metadata={"kind": kind, "number": n % 3}
        )
        for n in range(count)
        for kind in (kinds[n % 2],)
    ]


def trained(verso: Client, training: Training) -> str:
    """Train a head and return the version that is now its canary."""
    job = verso.train(training)
    stages = {event.data.get("progress", {}).get("stage") for event in verso.events(job.id)}
    job = verso.wait(job.id)
    assert job.status is Status.SUCCEEDED, job.error
    assert {"train", "publish"} <= stages
    [result] = verso.results(job.id)
    return str(result["version"])


def classify_new_lines(verso: Client, *, version: str) -> None:
    """Ask a promoted head about lines it has not seen, at any error rate and at a small one."""
    kinds = [kind for kind in LINES for _ in range(10)]
    texts = [LINES[kind].format(n=1000 + 7 * n) for n, kind in enumerate(kinds)]
    found = [one.heads[0] for one in verso.classify("events", texts=texts)]
    assert {one.version for one in found} == {version}
    assert [one.label for one in found] == kinds
    careful = [one.heads[0] for one in verso.classify("events", texts=texts, accept_error=0.2)]
    assert all(one.abstained == (one.label is None) for one in careful)
    assert all(one.label in (None, kind) for one, kind in zip(careful, kinds, strict=True))


def await_registry(verso: Client, done: Callable[[RegistryState], bool]) -> RegistryState:
    """Wait until the workers have followed the registry."""
    until = time.monotonic() + 240
    while not done(state := verso.registry()):
        assert time.monotonic() < until, state
        time.sleep(0.2)
    return state


def test_a_head_is_trained_on_a_collection_promoted_and_taken_back(
    verso: Client, collection: str
) -> None:
    # One that is made again lies under another name in the stores, as after a migration.
    verso.delete_collection(collection)
    verso.create_collection(collection)
    assert not verso.ingest(labelled(), collection=collection).failed
    training = Training("events", collection=collection, label_key="kind", licence="CC0-1.0")
    first = trained(verso, training)
    state = verso.registry()
    assert (state.heads["events"].stable, state.heads["events"].canary) == (None, first)
    assert verso.promote("events").heads["events"].stable == first
    classify_new_lines(verso, version=first)
    report = verso.head_report("events")
    assert "errors, %, among the surest" in report
    assert "CC0-1.0" in report
    with pytest.raises(HeadUnknown, match="no canary version"):
        verso.head_report("events", channel=Channel.CANARY)

    # The records carry another key as well: its values would be other labels of the same head.
    other = Training("events", collection=collection, label_key="number")
    job = verso.wait(verso.train(other).id)
    assert job.status is Status.FAILED
    assert isinstance(job.exception(), LabelsChanged)
    second = trained(
        verso, Training("events", collection=collection, label_key="number", new_labels=True)
    )
    rollout = verso.registry().heads["events"]
    assert (rollout.stable, rollout.canary) == (first, second)
    rollout = verso.rollback("events").heads["events"]
    assert (rollout.stable, rollout.canary) == (first, None)
    assert rollout.withdrawn is not None
    assert rollout.withdrawn.version == second
    with pytest.raises(RequestInvalid, match="earlier"):
        verso.rollback("events")


def test_a_head_is_trained_on_lines_and_reads_them(verso: Client) -> None:
    """Lines of a log collection are labelled by the labels of their streams."""
    verso.create_collection("lines-trained", kind=CollectionKind.LOGS)
    for kind, line in LINES.items():
        body = "".join(f"{line.format(n=n)}\n" for n in range(160)).encode()
        verso.ingest_lines([body], collection="lines-trained", labels={"kind": kind})
    version = trained(verso, Training("lines", collection="lines-trained", label_key="kind"))
    assert verso.promote("lines").heads["lines"].stable == version
    ids = [f"{stream}:{number}" for stream in range(2) for number in range(0, 160, 40)]
    read = verso.reconstruct(ids, collection="lines-trained")
    kinds = ["disk" if one.data.startswith(b"kernel") else "login" for one in read]
    found = verso.classify("lines", ids=ids, collection="lines-trained")
    assert [one.heads[0].label for one in found] == kinds
    assert set(kinds) == set(LINES)
    verso.delete_collection("lines-trained")


def test_a_head_can_be_made_to_read_the_ends(verso: Client, collection: str) -> None:
    """All texts begin alike and are of several chunks; what they are stands in the last ones."""
    begin = "".join(f"checking dependency number {n} of the build: found\n" for n in range(60))
    end = {kind: f"{line}\n" * 30 for kind, line in LINES.items()}
    documents = [
        Document(begin + end[kind].format(n=n), id=f"{kind}/{n}", metadata={"kind": kind})
        for n in range(80)
        for kind in (list(LINES)[n % 2],)
    ]
    assert not verso.ingest(documents, collection=collection).failed
    assert verso.stats(collection).chunks >= 3 * len(documents)
    recipe = {"classify": {"chunk": "last"}}
    training = Training("ends", collection=collection, label_key="kind", recipe=recipe)
    job = verso.wait(verso.train(training).id)
    assert job.status is Status.SUCCEEDED, job.error
    [result] = verso.results(job.id)
    rows = result["rows"]
    assert isinstance(rows, dict)
    assert sum(rows.values()) == len(documents)
    verso.promote("ends")
    stable = verso.head("ends").stable
    assert stable is not None
    assert stable.chunk == "last"
    texts = [begin + end[kind].format(n=777) for kind in LINES]
    assert [one.heads[0].label for one in verso.classify("ends", texts=texts)] == list(LINES)
    first = verso.classify("ends", texts=texts, chunk=Portion.FIRST)
    assert first[0].heads[0].label == first[1].heads[0].label


def test_a_head_that_reads_tokens_is_trained_on_texts_rebuilt_from_a_collection(
    verso: Client, collection: str
) -> None:
    assert not verso.ingest(labelled(80), collection=collection).failed
    settings = {"epochs": 20, "rate": 4e-3, "rank": 8, "dropout": 0.0, "tokens_per_step": 400}
    settings |= {"max_tokens": 48, "patience": 2, "decoder": True}
    recipe = {"reads": "tokens", "classify": settings}
    training = Training("words", collection=collection, label_key="kind", recipe=recipe)
    job = verso.wait(verso.train(training).id)
    assert job.status is Status.SUCCEEDED, job.error
    [result] = verso.results(job.id)
    rows, history = result["rows"], result["history"]
    assert isinstance(rows, dict)
    assert isinstance(history, list)
    assert sum(rows.values()) == 80
    assert any("validation_loss" in row.get("metrics", {}) for row in history)
    verso.promote("words")
    ids = [f"{kind}/{n}" for n, kind in ((40, "disk"), (41, "login"))]
    found = verso.classify("words", ids=ids, collection=collection, signals=True)
    assert [one.heads[0].label for one in found] == ["disk", "login"]
    # It was calibrated with what the decoder says, and is asked for it again.
    stable = verso.head("words").stable
    assert stable is not None
    assert "augrc/bits_given_vector" in stable.metrics
    for one in found:
        signals = one.heads[0].signals
        assert signals is not None
        assert 0 <= float(signals["self_generation"] or -1) <= 1
        assert float(signals["bits_given_vector"] or 1) < 0
        assert signals["bits_saved"] is not None


def test_a_head_is_trained_on_questions_promoted_and_asked(verso: Client, collection: str) -> None:
    """A file as SQuAD is goes in; answers out of new logs come out, and "no answer" where so."""
    recipe = {"answer": made_up.SETTINGS}
    version = trained(verso, Training("faults", squad=made_up.squad(), recipe=recipe))
    assert verso.promote("faults").heads["faults"].stable == version
    told, silent = (
        f"2026-11-21T09:06:07Z WARN keeper: worker 4 of 8 {said}, retry in 4 s"
        for said in ("ran out of memory", "has answered")
    )
    found = verso.answer(made_up.QUESTION, contexts=[silent, told], head="faults")
    assert (found.head, found.version, found.answered) == ("faults", version, True)
    best = found.answers[0]
    assert (best.context, best.text) == (1, "ran out of memory")
    assert told.encode()[best.start_byte : best.end_byte] == b"ran out of memory"
    assert not verso.answer(made_up.QUESTION, contexts=[silent], head="faults").answered
    # From a collection the same, after its texts were dropped.
    assert not verso.ingest([Document(told, id="told")], collection=collection).failed
    stored = verso.answer(made_up.QUESTION, collection=collection, head="faults")
    assert stored.answered
    assert stored.answers[0].text == "ran out of memory"
    assert "| test |" in verso.head_report("faults")
    # The name is taken: a classifier of this name would be asked what it cannot do.
    rows = [{"text": f"{said} {n}", "label": said} for said in ("on", "off") for n in range(12)]
    job = verso.wait(verso.train(Training("faults", rows=rows)).id)
    assert isinstance(job.exception(), RequestInvalid)


def test_questions_that_cannot_be_trained_on_are_refused_at_once(verso: Client) -> None:
    def ask(**change: object) -> None:
        document = made_up.squad()
        document["data"][3]["paragraphs"][1]["qas"][0] |= change
        verso.train(Training("faults", squad=document))

    place = "article 3, paragraph 1, question 0"
    elsewhere = {"is_impossible": False, "answers": [{"text": "no such", "answer_start": 0}]}
    with pytest.raises(TrainingDataInvalid, match=f"{place}: .*not in the context"):
        ask(**elsewhere)
    with pytest.raises(DuplicateId, match=place):
        ask(id="0.0")
    with pytest.raises(TrainingDataInvalid, match="expected an array as 'data'"):
        verso.train(Training("faults", squad={"rows": []}))


def test_rows_that_cannot_be_trained_on_are_refused_at_once(verso: Client) -> None:
    one = [{"text": f"line {n}", "label": "only"} for n in range(20)]
    with pytest.raises(TrainingDataInvalid, match="at least two labels"):
        verso.train(Training("events", rows=one))
    with pytest.raises(TrainingDataInvalid, match="line 2"):
        verso.train(Training("events", file=b'{"text": "a", "label": "b"}\n{"text": "c"}\n'))


def test_an_artifact_is_taken_up_tried_and_taken_back_while_texts_come_in(
    new_platform: Callable[..., Platform],
    variant: Callable[..., Path],
    lines: Callable[[int], list[Document]],
) -> None:
    """A publish, a canary, a corrupt one and a rollback, under load: no request fails."""
    platform = new_platform(VERSO_VERIFY_DELAY_S="0.1", VERSO_RAW_TEXT_RETENTION_S="0")
    platform.start()
    models = platform.data / "models"
    documents = lines(240)
    with platform.client() as verso:
        first = verso.registry().artifact.stable

        def put(start: int) -> None:
            part = documents[start : start + 60]
            assert not verso.ingest(part, collection="default").failed

        put(0)
        variant(models / "second", 2)
        registry.assign(models, Channel.CANARY, "second", share=1.0)
        await_registry(verso, lambda s: _served(s, "canary") == "second")
        put(60)
        verso.promote()
        await_registry(verso, lambda s: _served(s, "stable") == "second")
        put(120)
        spoilt = variant(models / "third", 3)
        (spoilt / "zstd.dict").write_bytes(b"another dictionary " * 100)
        registry.assign(models, Channel.STABLE, "third")
        state = await_registry(verso, lambda s: bool(s.workers[0]["artifact"]["refused"]))
        assert _served(state, "stable") == "second"
        put(180)
        verso.rollback()
        found = platform.read_all("default", [d.id or "" for d in documents])
        assert found == {str(d.id): str(d.text).encode() for d in documents}
        artifacts = next(c for c in verso.collections() if c.name == "default").artifacts
        assert len(artifacts) == 2
        assert first is not None


def _served(state: RegistryState, channel: str) -> str | None:
    if not state.workers:
        return None
    found = state.workers[0]["artifact"][channel]
    return None if found is None else str(found["name"])
