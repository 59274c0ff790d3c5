"""Maps of collections, and how documents are stored, on real stores and a tiny model."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.verso_worker.worker_parts import TEXTS, Stores
from tests.wire import Item

from verso_core.jobs import Kind, Queue
from verso_core.record import Codec


@pytest.fixture
def filled(stores: Stores) -> Stores:
    """The default collection with texts of all sorts."""
    stores.fill(TEXTS)
    return stores


def ask(stores: Stores, kind: Kind, item: dict[str, Any] | None = None, **params: Any) -> Any:
    _, [result] = stores.do(
        kind, {"collection": "default", **params}, [Item(item or {})], queue=Queue.INTERACTIVE
    )
    return result.items[0]


def described(stores: Stores, document: str, chunk: int | None = None, **params: Any) -> Any:
    item: dict[str, Any] = {"id": document} | ({} if chunk is None else {"chunk": chunk})
    return ask(stores, Kind.RECORDS, item, **params)


def test_every_record_is_on_the_map_with_a_colour(filled: Stores) -> None:
    found = ask(filled, Kind.PROJECT)
    chunks = {name: len(filled.entry(name).records) for name in TEXTS}
    assert sorted(found["ids"]) == sorted(
        f"{name}#{n}" for name, count in chunks.items() for n in range(count)
    )
    assert found["records"] == len(found["ids"]) == len(found["x"]) == len(found["colour"])
    assert 0 < sum(found["explained"]) <= 1.0
    assert sum(one["points"] for one in found["colours"]) == found["records"]
    assert min(found["colour"]) >= 0


def test_points_are_coloured_by_a_label(filled: Stores) -> None:
    found = ask(filled, Kind.PROJECT, colour="label", label_key="n")
    labels = [found["colours"][at]["label"] for at in found["colour"]]
    assert labels == [name.partition("#")[0] for name in found["ids"]]
    assert ask(filled, Kind.PROJECT, colour="label", label_key="no")["colours"] == []
    assert set(ask(filled, Kind.PROJECT, colour="none")["colour"]) == {-1}


def test_a_label_may_be_a_nested_value_or_the_first_of_several(stores: Stores) -> None:
    about = {"of": {"team": "a", "n": [2, 1]}}
    item = Item({"id": "one", "metadata": about}, b"some text")
    stores.do(Kind.INGEST, {"collection": "default"}, [item])
    for key, label in {"of.team": "a", "metadata.of.team": "a", "of.n": "2"}.items():
        found = ask(stores, Kind.PROJECT, colour="label", label_key=key)
        assert [one["label"] for one in found["colours"]] == [label]


def test_rows_to_train_on_have_the_labels_of_a_map(stores: Stores) -> None:
    about = {"one": {"of": {"team": "a"}}, "two": {"of": {"team": None}}, "three": {"of": None}}
    items = [Item({"id": name, "metadata": own}, b"a text") for name, own in about.items()]
    stores.do(Kind.INGEST, {"collection": "default"}, items)
    part = {"first": 0, "count": 1 << 16, "most": 64}
    for texts in (True, False):
        found = ask(stores, Kind.ROWS, part, label_key="of.team", texts=texts)
        assert (found["ids"], found["labels"]) == (["one"], ["a"])
        assert ask(stores, Kind.ROWS, part, label_key="of", texts=texts)["labels"] == []


def test_a_sample_is_as_large_as_asked(filled: Stores) -> None:
    found = ask(filled, Kind.PROJECT, limit=3)
    assert len(found["ids"]) == 3
    assert found["records"] > 3


def test_an_empty_collection_has_an_empty_map(stores: Stores) -> None:
    found = ask(stores, Kind.PROJECT)
    assert found["ids"] == found["colours"] == []
    assert found["records"] == 0


def test_a_document_is_described_as_it_is_stored(filled: Stores) -> None:
    entry = filled.entry("long")
    found = described(filled, "long", vector=True)
    assert found["chunks"] == len(entry.records) == len(found["records"]) > 1
    assert found["bytes_text"] == len(TEXTS["long"])
    assert sum(one["bytes_text"] for one in found["records"]) == len(TEXTS["long"])
    assert found["bytes_entry"] == len(entry.pack())
    for one, record in zip(found["records"], entry.records, strict=True):
        assert one["codec"] == record.codec.name.lower()
        assert one["bytes_patch"] == 1 + len(record.payload)
        assert one["vector_hash"] == record.vector_hash.hex()
        assert one["bytes_vector"] > 0
        assert sum(number**2 for number in one["vector"]) == pytest.approx(1, abs=0.05)


def test_one_record_is_described_alone_and_others_up_to_the_limit(filled: Stores) -> None:
    assert [one["id"] for one in described(filled, "long", 1)["records"]] == ["long#1"]
    assert [one["id"] for one in described(filled, "long", limit=1)["records"]] == ["long#0"]


def test_what_the_patch_corrects_is_where_the_guess_is_wrong(filled: Stores) -> None:
    [record] = described(filled, "unicode", draft=True)["records"]
    text, draft = TEXTS["unicode"], record["draft"]
    assert draft["tokens"] > 0
    assert draft["right"] + len(draft["corrections"]) == draft["tokens"]
    assert 0 <= draft["confidence"] <= 1
    characters = text.decode()
    last = 0
    for one in draft["corrections"]:
        part = text[one["start_byte"] : one["end_byte"]]
        assert part
        assert one["start_byte"] >= last
        assert one["guess"].encode() != part
        # characters cover the bytes, whose ends may lie within a character
        covered = characters[one["start"] : one["end"]].encode()
        assert part in covered
        last = one["end_byte"]


def test_a_text_that_the_decoder_cannot_read_has_a_guess_and_no_corrections(
    filled: Stores,
) -> None:
    [record] = described(filled, "binary", draft=True)["records"]
    assert record["codec"] != Codec.NEURAL.name.lower()
    assert record["draft"]["tokens"] == record["draft"]["right"] == 0
    assert record["draft"]["corrections"] == []


def test_what_does_not_exist_is_not_described(filled: Stores) -> None:
    assert described(filled, "none")["error"]["code"] == "document_unknown"
    assert described(filled, "short", 7)["error"]["code"] == "document_unknown"
