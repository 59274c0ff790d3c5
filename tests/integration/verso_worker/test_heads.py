"""Heads in the engine: what they give, what they share, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from verso_core import heads as heads_file
from verso_core import manifest
from verso_core.errors import HeadInvalid, HeadUnknown, QuestionTooLong, VectorInvalid
from verso_core.heads import Head, named
from verso_worker.engine.heads import Heads
from verso_worker.engine.loading import load_service
from verso_worker.engine.service import Service

DATA = Path(__file__).parents[2] / "data"
ARTIFACT = DATA / "artifact-tiny"
FOLDERS = {path.parent.name: path for path in (DATA / "heads-tiny" / "heads").glob("*/*")}
_TASKS = Path("/proc/self/task")
LINES = {
    "request": b"2026-03-04T05:06:07Z INFO gateway[812]: request 0badcafe finished in 31 ms",
    "retry": b"2026-03-04T05:06:07Z WARN keeper: worker 3 of 8 timed out, retry in 4 s",
    "failed-test": b"2026-03-04T05:06:07Z FAILED tests/test_cache.py::test_patch_load - "
    b"AssertionError: 12 != 0badcafe",
    "frame": b"\tat org.example.worker.queue.fetch(queue.java:77)",
}


@pytest.fixture(scope="module")
def loaded() -> Iterator[Heads]:
    heads = Heads(manifest.load(ARTIFACT), threads=1)
    for folder in FOLDERS.values():
        heads.load(folder)
    yield heads
    heads.close()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    service = load_service(manifest.load(ARTIFACT), threads=1)
    yield service
    service.close()


def version(name: str) -> str:
    return FOLDERS[name].name


def labels(name: str) -> tuple[str, ...]:
    return heads_file.load(FOLDERS[name]).head.labels


def test_a_line_is_classified_from_its_vector_and_from_its_tokens_alike(
    loaded: Heads, service: Service
) -> None:
    vectors = service.encode(list(LINES.values())).vectors
    by_vector = loaded.classify_vectors("kinds", version("kinds"), vectors=vectors)
    by_tokens = loaded.classify_texts(
        "kinds-tokens", version("kinds-tokens"), texts=list(LINES.values())
    )
    for name, found in (("kinds", by_vector), ("kinds-tokens", by_tokens)):
        best = [labels(name)[place] for place in found.logits.argmax(axis=1)]
        assert best == list(LINES)
    assert by_vector.features is None
    assert by_tokens.features is not None


def test_the_order_and_company_of_texts_change_nothing(loaded: Heads) -> None:
    texts = [*LINES.values(), b"", b"\xff\xfe", b"word " * 500]
    run = version("kinds-tokens")
    together = loaded.classify_texts("kinds-tokens", run, texts=texts).logits
    alone = [loaded.classify_texts("kinds-tokens", run, texts=[text]).logits[0] for text in texts]
    np.testing.assert_allclose(together, np.stack(alone), atol=1e-4)
    back = loaded.classify_texts("kinds-tokens", run, texts=texts[::-1]).logits[::-1]
    np.testing.assert_allclose(together, back, atol=1e-4)


def test_pairs_are_scored_by_tokens_and_by_vectors(loaded: Heads, service: Service) -> None:
    other = LINES["retry"].replace(b"worker 3", b"worker 5")
    same, different = loaded.score_texts(
        "pairs",
        version("pairs"),
        first=[LINES["retry"]] * 2,
        second=[other, LINES["frame"]],
    )
    assert same > different
    u, v, w = service.encode([LINES["retry"], other, LINES["frame"]]).vectors
    scores = loaded.score_vectors("alike", version("alike"), pairs=np.array([[u, v], [u, w]]))
    np.testing.assert_allclose(scores, np.clip([u @ v, u @ w], 0, 1), atol=1e-5)


def test_an_answer_is_found_in_whichever_window_it_stands(loaded: Heads) -> None:
    fault = "timed out"
    filler = "The queue loads every token that the gateway checked before. " * 30
    line = LINES["retry"].decode()
    for context in (line, filler + line, line + " " + filler, "e\u0301\U0001f469 " + line):
        [found] = loaded.answer(
            "qa", version("qa"), question=b"what was the fault", contexts=[context], count=3
        )
        best = found.spans[0]
        assert context[best.start : best.end] == fault
        assert best.score > found.null_score
        spans = [(span.start, span.end) for span in found.spans]
        assert all(a[1] <= b[0] or b[1] <= a[0] for a in spans for b in spans if a != b)


def test_a_text_without_an_answer_has_a_null_score_above_its_spans(loaded: Heads) -> None:
    [found] = loaded.answer(
        "qa",
        version("qa"),
        question=b"what was the fault",
        contexts=[LINES["frame"].decode()],
        count=1,
    )
    assert not found.spans or found.spans[0].score < found.null_score


def test_a_long_call_finds_what_short_ones_find_and_lets_other_threads_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, others = os.getpriority(os.PRIO_PROCESS, 0), _priorities().keys()
    heads = Heads(manifest.load(ARTIFACT), threads=2)
    heads.load(FOLDERS["qa"])
    contexts = [f"{line.decode()} and {n} others" for n, line in enumerate(LINES.values())] * 64

    def spans(contexts: list[str]) -> list[list[tuple[int, int]]]:
        found = heads.answer(
            "qa", version("qa"), question=b"what was the fault", contexts=contexts, count=1
        )
        return [[(span.start, span.end) for span in one.spans] for one in found]

    def yielding() -> int:
        return sum(n > own for thread, n in _priorities().items() if thread not in others)

    try:
        apart = [one for context in contexts[:4] for one in spans([context])]
        monkeypatch.setattr("verso_worker.engine.heads._ALONE_S", 3600.0)
        assert spans(contexts)[:4] == apart  # beside other calls: it leaves a core to them
        beside = yielding()
        monkeypatch.setattr("verso_worker.engine.heads._ALONE_S", 0.0)
        assert spans(contexts)[:4] == apart  # alone: on all cores
        alone = yielding()
    finally:
        heads.close()
    assert (beside, alone) == (1, 2) or sys.platform != "linux"


def _priorities() -> dict[int, int]:
    """Return the priority of each thread of this process; a larger number comes later."""
    threads = [int(task.name) for task in _TASKS.glob("*")]
    return {thread: os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}


def test_a_question_that_leaves_no_room_is_refused(loaded: Heads) -> None:
    with pytest.raises(QuestionTooLong, match="tokens"):
        loaded.answer("qa", version("qa"), question=b"what " * 300, contexts=["a text"], count=1)


def test_all_heads_on_tokens_hold_the_encoder_once(loaded: Heads) -> None:
    wanted = heads_file.load(FOLDERS["qa"]).head.base_weights
    first, second = loaded._weights.take(wanted), loaded._weights.take(wanted)
    assert wanted
    assert all(first[name] is second[name] for name in wanted)
    for name in ("qa", "pairs", "kinds-tokens"):
        size = (FOLDERS[name] / "head.onnx").stat().st_size
        assert size < 0.8 * (ARTIFACT / "encoder.onnx").stat().st_size


def test_what_is_not_loaded_or_does_something_else_is_unknown(loaded: Heads) -> None:
    vectors = np.zeros((1, 384), np.float32)
    with pytest.raises(HeadUnknown, match="not loaded"):
        loaded.classify_vectors("kinds", "0" * 16, vectors=vectors)
    with pytest.raises(HeadUnknown, match="does answer from token_pair"):
        loaded.classify_vectors("qa", version("qa"), vectors=vectors)
    with pytest.raises(VectorInvalid, match="dim 384"):
        loaded.classify_vectors("kinds", version("kinds"), vectors=vectors[:, :7])
    with pytest.raises(VectorInvalid, match="NaN"):
        loaded.classify_vectors("kinds", version("kinds"), vectors=vectors * np.nan)


def _other_space(head: Head) -> Head:
    return head.model_copy(update={"space": "f" * 16})


def _lost_weight(head: Head) -> Head:
    first, *_ = head.base_weights
    gone = {first: {"tensor": "nothing"}}
    return Head.model_validate(
        head.model_dump() | {"base_weights": head.model_dump()["base_weights"] | gone}
    )


@pytest.mark.parametrize(
    ("change", "message"), [(_other_space, "space"), (_lost_weight, "no tensor 'nothing'")]
)
def test_a_head_for_another_encoder_is_refused(
    tmp_path: Path, change: Callable[[Head], Head], message: str
) -> None:
    folder = Path(shutil.copytree(FOLDERS["qa"], tmp_path / "qa"))
    head = change(heads_file.load(folder).head)
    (folder / "head.json").write_text(named(head).model_dump_json())
    heads = Heads(manifest.load(ARTIFACT), threads=1)
    with pytest.raises(HeadInvalid, match=message):
        heads.load(folder)
    heads.close()


def test_a_head_that_fails_its_golden_samples_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDERS["kinds"], tmp_path / "kinds"))
    golden = folder / "golden.jsonl"
    samples = [json.loads(line) for line in golden.read_text().splitlines()]
    samples[3]["outputs"]["logits"][0] += 1.0
    golden.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    head = heads_file.Head.model_validate_json((folder / "head.json").read_bytes())
    files = head.files | {"golden.jsonl": manifest.describe(golden)}
    changed = named(head.model_copy(update={"files": files}))
    (folder / "head.json").write_text(changed.model_dump_json())
    heads = Heads(manifest.load(ARTIFACT), threads=1)
    with pytest.raises(HeadInvalid, match="golden sample 4: logits differs"):
        heads.load(folder)
    heads.close()
