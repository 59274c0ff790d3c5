"""The sample corpus is what its README says."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from verso_client import Document
from verso_core.texts import check_document_id, check_metadata
from verso_standalone import sample
from verso_training.data import sources


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return sample.documents()


def size(document: Document) -> int:
    assert isinstance(document.text, bytes)
    return len(document.text)


def test_it_holds_at_least_two_thousand_texts_and_one_megabyte(documents: list[Document]) -> None:
    assert len(documents) >= 2000
    assert sum(map(size, documents)) >= 1 << 20


def test_the_readme_states_its_counts(documents: list[Document]) -> None:
    readme = (sample.FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"{len(documents):,} real texts, {sum(map(size, documents)):,} bytes" in readme
    kinds = Counter(str(document.metadata["kind"]) for document in documents)
    stated: Counter[str] = Counter()
    for count, kind in re.findall(r"^\| (\d+) \| `(\w+)` \|", readme, flags=re.MULTILINE):
        stated[kind] += int(count)
    assert stated == kinds


def test_every_source_stands_in_the_notice(documents: list[Document]) -> None:
    notice = (sample.FOLDER / "NOTICE").read_text(encoding="utf-8")
    named = {"cia-world-factbook-1995": "CIA World Factbook 1995", "classic-books": "classic-books"}
    for source in {str(document.metadata["source"]) for document in documents}:
        assert named.get(source, source) in notice


def test_every_prose_text_comes_from_a_document_that_training_holds_out(
    documents: list[Document],
) -> None:
    for document in documents:
        name = str(document.id)
        if name.startswith("docs/"):
            key = name.removeprefix("docs/")
            if document.metadata["kind"] == "paragraph":
                key = key.rsplit("/", 2)[0]
        elif name.startswith("books/"):
            key = "books:" + name.removeprefix("books/").rsplit("/", 2)[0]
        elif name.startswith("factbook1995/"):
            key = name.replace("/", ":", 2)
        else:
            continue
        assert sources.held_out(key), name


def test_ids_are_valid_and_unique_and_texts_differ(documents: list[Document]) -> None:
    assert len({check_document_id(document.id) for document in documents}) == len(documents)
    assert len({document.text for document in documents}) == len(documents)
    for document in documents:
        check_metadata(dict(document.metadata))


def test_it_mixes_short_lines_long_pages_and_several_systems(documents: list[Document]) -> None:
    assert min(map(size, documents)) < 60
    assert max(map(size, documents)) > 8000
    assert sum(b"\n" in bytes(d.text) for d in documents if isinstance(d.text, bytes)) > 500
    assert len({document.metadata["system"] for document in documents}) >= 10


def test_each_question_has_its_answer_in_the_corpus(documents: list[Document]) -> None:
    questions = sample.questions()
    assert len(questions) == 10
    known = {document.id: document for document in documents}
    for question in questions:
        assert question.right
        for name in question.right:
            document = known[name]
            if question.filter is not None:
                wanted = question.filter.metadata
                assert all(document.metadata[key] == value for key, value in wanted.items())


def test_a_part_of_the_corpus_has_the_answer_to_each_question() -> None:
    some = [document.id for document in sample.documents(100)]
    assert len(some) == 100
    assert {name for question in sample.questions() for name in question.right} <= set(some)
    assert len(sample.documents(2000)) == 2000
    assert sample.documents(10**6) == sample.documents()
