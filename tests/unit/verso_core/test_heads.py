"""A head loads whole and unaltered, or is a clear error."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from verso_core.errors import HeadInvalid
from verso_core.heads import (
    FILES,
    HEAD_NAME,
    Calibration,
    Head,
    Lineage,
    Portion,
    Reads,
    Relevance,
    SignalName,
    Stack,
    Task,
    TextUnit,
    load,
    named,
    version_of,
)
from verso_core.manifest import describe

LINEAGE = Lineage(
    data_sha256="0" * 64,
    data=("made-up",),
    licence="Apache-2.0",
    recipe={"epochs": 3},
    base_artifact="space-codec",
    command="python -m verso_training tiny-heads OUT",
    machine="a machine",
    created=datetime(2026, 1, 1, tzinfo=UTC),
)
CLASSIFY: dict[str, Any] = {
    "name": "colours",
    "created": datetime(2026, 1, 1, tzinfo=UTC),
    "task": Task.CLASSIFY,
    "reads": Reads.VECTOR,
    "space": "0123456789abcdef",
    "labels": ("red", "blue", "other"),
    "none_label": "other",
    "calibration": Calibration(temperature=1.5, conformal={"0.05": 0.9}),
    "lineage": LINEAGE,
    "files": {},
}
ANSWER: dict[str, Any] = CLASSIFY | {
    "task": Task.ANSWER,
    "reads": Reads.TOKEN_PAIR,
    "labels": (),
    "none_label": None,
    "max_tokens": 128,
    "stride": 64,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A head whose files hold no graph: only their hashes matter here."""
    for name in FILES:
        (tmp_path / name).write_text(f"content of {name}")
    files = {name: describe(tmp_path / name) for name in FILES}
    head = named(Head(**CLASSIFY | {"files": files}))
    (tmp_path / HEAD_NAME).write_text(head.model_dump_json())
    return tmp_path


def test_an_unaltered_head_loads(folder: Path) -> None:
    loaded = load(folder)
    assert loaded.head.version == version_of(loaded.head)
    assert loaded.data["head.onnx"] == b"content of head.onnx"
    assert loaded.head.calibration.conformal == {"0.05": 0.9}


@pytest.mark.parametrize("name", FILES)
def test_an_altered_file_is_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes((folder / name).read_bytes() + b"x")
    with pytest.raises(HeadInvalid, match=rf"^{name}: expected sha256"):
        load(folder)


@pytest.mark.parametrize("name", [*FILES, HEAD_NAME])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(HeadInvalid, match=name):
        load(folder)


def test_an_altered_setting_is_another_version(folder: Path) -> None:
    path = folder / HEAD_NAME
    path.write_text(path.read_text().replace('"temperature":1.5', '"temperature":2.5'))
    with pytest.raises(HeadInvalid, match="expected version"):
        load(folder)


def test_the_day_a_head_was_made_is_no_part_of_its_version() -> None:
    one = Head(**CLASSIFY)
    other = one.model_copy(update={"created": datetime(2027, 1, 1, tzinfo=UTC)})
    assert version_of(one) == version_of(other)


def test_a_chunk_is_part_of_a_version_only_where_it_is_set() -> None:
    silent = Head(**CLASSIFY)
    assert version_of(silent) == "a4911affb8a9abd2"
    versions = {version_of(silent.model_copy(update={"chunk": one})) for one in (None, *Portion)}
    assert len(versions) == 1 + len(Portion)


def test_what_a_head_that_scores_reads_is_part_of_its_version_where_it_is_set() -> None:
    own = {"task": "score", "reads": "vector_pair", "labels": (), "none_label": None}
    silent = Head(**CLASSIFY | own)
    versions = {
        version_of(silent.model_copy(update={"text_unit": one})) for one in (None, *TextUnit)
    }
    assert len(versions) == 1 + len(TextUnit)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: "{", "JSON"),
        (lambda text: text.replace('"format":1', '"format":2'), "format 1, got 2"),
        (lambda text: text.replace('"CARD.md"', '"../CARD.md"'), r"does not list CARD\.md"),
        (lambda text: text.replace('"none_label"', '"nobody"'), "nobody"),
    ],
)
def test_a_description_that_is_none_is_refused(
    folder: Path, change: Callable[[str], str], message: str
) -> None:
    path = folder / HEAD_NAME
    path.write_text(change(path.read_text()))
    with pytest.raises(HeadInvalid, match=message):
        load(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (CLASSIFY | {"labels": ("red",)}, "two or more labels"),
        (CLASSIFY | {"labels": ("red", "red", "other")}, "all different"),
        (CLASSIFY | {"none_label": "green"}, "none_label among the labels"),
        (CLASSIFY | {"reads": Reads.TOKENS}, "max_tokens"),
        (CLASSIFY | {"max_tokens": 64}, "max_tokens"),
        (CLASSIFY | {"reads": Reads.VECTOR_PAIR}, "classify to read document, tokens, vector"),
        (CLASSIFY | {"base_weights": {"w": {"tensor": "v"}}}, "base_weights only"),
        (CLASSIFY | {"name": "../x"}, "name"),
        (ANSWER | {"stride": None}, "stride"),
        (ANSWER | {"chunk": "last"}, "no chunk for answer"),
        (ANSWER | {"text_unit": "passage"}, "no text_unit for answer"),
        (CLASSIFY | {"chunk": "middle"}, "chunk"),
        (ANSWER | {"labels": ("a", "b")}, "no labels"),
        (ANSWER | {"base_weights": {"w": {"codes": "v"}}}, "scale"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        Head(**settings)


@pytest.mark.parametrize("rate", ["0", "1", "5 %"])
def test_an_error_rate_lies_between_0_and_1(rate: str) -> None:
    with pytest.raises(ValidationError, match="error rate"):
        Calibration(conformal={rate: 0.5})


def test_a_stack_is_not_made_of_itself() -> None:
    with pytest.raises(ValidationError, match="other than stack"):
        Calibration(stack=Stack(bias=0.0, weights={SignalName.STACK: 1.0}))


def test_a_relevance_is_part_of_a_heads_version_and_its_absence_is_not() -> None:
    head = Head(**ANSWER)
    relevance = Relevance(weight=2.0, usual=0.5)
    calibration = head.calibration.model_copy(update={"relevance": relevance})
    assert version_of(head.model_copy(update={"calibration": calibration})) != version_of(head)
    before = head.model_dump(mode="json")
    assert before["calibration"].pop("relevance") is None
    assert version_of(Head.model_validate(before)) == version_of(head)


def test_limits_of_sources_are_part_of_a_heads_version_and_their_absence_is_not() -> None:
    head = Head(**CLASSIFY | {"labels": ("a/x", "b/x"), "none_label": None})
    calibration = head.calibration.model_copy(update={"source_limits": {"a": 0.9}})
    assert version_of(head.model_copy(update={"calibration": calibration})) != version_of(head)
    before = head.model_dump(mode="json")
    assert before["calibration"].pop("source_limits") == {}
    assert version_of(Head.model_validate(before)) == version_of(head)


@pytest.mark.parametrize("limits", [{"c": 0.9}, {"a": 0.0}, {"a": 1.5}])
def test_a_limit_is_a_probability_of_a_source_that_the_head_has(limits: dict[str, float]) -> None:
    given = CLASSIFY | {"labels": ("a/x", "b/x"), "none_label": None}
    with pytest.raises(ValidationError, match=r"source_limits|than 0|to 1"):
        Head.model_validate(given | {"calibration": {"source_limits": limits}})


def test_a_head_with_a_setting_of_a_later_version_is_refused(folder: Path) -> None:
    path = folder / HEAD_NAME
    later = path.read_text().replace('"temperature":', '"later_setting":{"a":0.9},"temperature":')
    path.write_text(later)
    with pytest.raises(HeadInvalid, match="later_setting"):
        load(folder)


@pytest.mark.parametrize("threshold", [-1.5, 0.0])
def test_a_threshold_of_found_records_is_part_of_a_heads_version(threshold: float) -> None:
    head = Head(**ANSWER)
    calibration = head.calibration.model_copy(update={"found_null_threshold": threshold})
    assert version_of(head.model_copy(update={"calibration": calibration})) != version_of(head)
    before = head.model_dump(mode="json")
    assert before["calibration"].pop("found_null_threshold") is None
    assert version_of(Head.model_validate(before)) == version_of(head)


def test_only_a_head_that_answers_has_a_relevance() -> None:
    calibration = Calibration(relevance=Relevance(weight=2.0, usual=0.5))
    with pytest.raises(ValidationError, match="only where answers are read"):
        Head(**CLASSIFY | {"calibration": calibration, "none_label": None})


def test_a_sentence_like_the_question_lowers_the_null_score() -> None:
    relevance = Relevance(weight=2.0, usual=0.5)
    assert relevance.corrected(1.0, 0.5) == 1.0
    assert relevance.corrected(1.0, 0.75) == 0.5
