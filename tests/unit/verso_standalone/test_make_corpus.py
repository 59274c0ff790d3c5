"""The corpus holds nothing that training sees."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_standalone import sample
from verso_training.data import sources

SCRIPT = sample.FOLDER.parents[1] / "make_corpus.py"


@pytest.fixture(scope="module")
def made() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_corpus", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_corpus"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@given(st.text(max_size=40))
def test_the_rule_of_held_out_documents_is_the_one_of_training(made: ModuleType, key: str) -> None:
    assert made.held_out(key) == sources.held_out(key)


def test_every_prose_text_comes_from_a_document_that_training_holds_out(
    made: ModuleType,
) -> None:
    for document in sample.documents():
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
        assert made.held_out(key), name
