"""LangChain's own suites, and filters against their meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.structured_query import (
    Comparator,
    Comparison,
    Operation,
    Operator,
    StructuredQuery,
)
from langchain_tests.integration_tests import (
    EmbeddingsIntegrationTests,
    RetrieversIntegrationTests,
    VectorStoreIntegrationTests,
)
from verso_langchain import (
    VersoEmbeddings,
    VersoRetriever,
    VersoTranslator,
    VersoVectorStore,
    filter_of,
)

from verso_client import Client, Filter
from verso_core.jobs.filters.compiled import matches


class TestVectorStore(VectorStoreIntegrationTests):
    """The suite of vector stores, synchronous and asynchronous."""

    @pytest.fixture
    def vectorstore(self, client: Client, collection: str) -> VersoVectorStore:
        return VersoVectorStore(collection, client=client)


class TestEmbeddings(EmbeddingsIntegrationTests):
    """The suite of embeddings."""

    @pytest.fixture
    def model(self, client: Client) -> VersoEmbeddings:
        return VersoEmbeddings(client)

    @property
    def embeddings_class(self) -> type[VersoEmbeddings]:
        return VersoEmbeddings


class TestRetriever(RetrieversIntegrationTests):
    """The suite of retrievers."""

    @pytest.fixture(autouse=True)
    def _stored(self, client: Client, collection: str) -> None:
        self._store = VersoVectorStore(collection, client=client)
        self._store.add_texts([f"line {n} of the poem" for n in range(5)])

    @property
    def retriever_constructor(self) -> type[VersoRetriever]:
        return VersoRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"store": self._store}

    @property
    def retriever_query_example(self) -> str:
        return "a line of verse"


def test_foreign_embeddings_are_ignored_with_a_warning(client: Client, collection: str) -> None:
    with pytest.warns(UserWarning, match="makes its own vectors"):
        store = VersoVectorStore.from_texts(
            ["a text"], DeterministicFakeEmbedding(size=6), client=client, collection=collection
        )
    assert [one.page_content for one in store.similarity_search("a text")] == ["a text"]


def test_a_hit_is_the_whole_document_once(client: Client, collection: str) -> None:
    store = VersoVectorStore(collection, client=client)
    long = " ".join(f"Sentence {n} of a long text about print servers." for n in range(300))
    store.add_documents([Document(id="long", page_content=long), Document(page_content="other")])
    [(found, score), *_] = store.similarity_search_with_relevance_scores("print servers", k=2)
    assert (found.id, found.page_content) == ("long", long)
    assert 0 <= score <= 1
    vector = store.embeddings.embed_query("other")
    assert store.similarity_search_by_vector(vector, k=1)[0].page_content == "other"


def test_a_filter_chooses_and_delete_without_ids_deletes_all(
    client: Client, collection: str
) -> None:
    store = VersoVectorStore(collection, client=client)
    rows = [{"n": n, "tags": ["odd" if n % 2 else "even"], "time": n} for n in range(6)]
    store.add_texts([f"text {n}" for n in range(6)], rows)
    for where, wanted in (
        ({"n": {"$gte": 2, "$lt": 5}}, {2, 3, 4}),
        ({"tags": "odd", "$not": {"n": 1}}, {3, 5}),
        ({"time": {"$in": [0, 4]}}, {0, 4}),
        (Filter(field="n", lt=1), {0}),
    ):
        found = store.similarity_search("text", k=10, filter=where)
        assert {one.metadata["n"] for one in found} == wanted
    store.delete()
    assert store.similarity_search("text") == []


def test_ids_that_no_document_can_have_are_not_there(client: Client, collection: str) -> None:
    store = VersoVectorStore(collection, client=client)
    store.add_texts(["a text", "another"], ids=["a", "b"])
    assert store.similarity_search("text", k=0) == []
    assert [one.id for one in store.get_by_ids(["", "a#0", "b"])] == ["b"]
    assert store.delete(["", "a#0", "x" * 257, "a"])
    assert [one.id for one in store.similarity_search("text")] == ["b"]


KEYS = st.sampled_from(["a", "b", "id", "time"])
VALUES = st.one_of(st.booleans(), st.integers(-3, 3), st.sampled_from(["", "x", "y"]), st.none())
METADATA = st.dictionaries(KEYS, VALUES)
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": lambda one, other: one > other,
    "$gte": lambda one, other: one >= other,
    "$lt": lambda one, other: one < other,
    "$lte": lambda one, other: one <= other,
}
LEAVES = st.one_of(
    st.fixed_dictionaries({"$eq": VALUES}),
    st.fixed_dictionaries({"$ne": VALUES}),
    st.fixed_dictionaries({"$in": st.lists(VALUES, max_size=3)}),
    st.fixed_dictionaries({"$nin": st.lists(VALUES, max_size=3)}),
    st.fixed_dictionaries({"$exists": st.booleans()}),
    st.dictionaries(st.sampled_from(list(_ORDERS)), st.integers(-3, 3), min_size=1),
    VALUES,
)
WHERE = st.recursive(
    st.dictionaries(KEYS, LEAVES, min_size=1),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"$and": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"$or": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"$not": inner}),
    ),
    max_leaves=6,
)


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


def holds(where: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """Say what a filter means, the way MongoDB's manual does; null is as a key that is missing."""
    for key, value in where.items():
        if key in ("$and", "$or"):
            parts = [holds(part, metadata) for part in value]
            found = all(parts) if key == "$and" else any(parts)
        elif key == "$not":
            found = not holds(value, metadata)
        else:
            asked = value if isinstance(value, Mapping) else {"$eq": value}
            found = all(_leaf(metadata.get(key), *one) for one in asked.items())
        if not found:
            return False
    return True


def _leaf(stored: Any, name: str, wanted: Any) -> bool:
    match name:
        case "$eq":
            return same(stored, wanted)
        case "$ne":
            return not same(stored, wanted)
        case "$in":
            return any(same(stored, one) for one in wanted)
        case "$nin":
            return not any(same(stored, one) for one in wanted)
        case "$exists":
            return bool((stored is not None) == wanted)
    is_number = isinstance(stored, int) and not isinstance(stored, bool)
    return is_number and bool(_ORDERS[name](stored, wanted))


@given(where=WHERE, metadata=METADATA)
def test_a_filter_means_the_same(where: dict[str, Any], metadata: dict[str, Any]) -> None:
    translated = filter_of(where)
    assert matches(translated, metadata=metadata, time=5.0, id="x") == holds(where, metadata)


@pytest.mark.parametrize("where", [{"$nor": []}, {"a": {"$like": "x"}}, {"a": {"$gt": "x"}}])
def test_what_no_filter_says_is_refused(where: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        filter_of(where)


def test_a_structured_query_is_translated() -> None:
    where = Operation(
        operator=Operator.NOT,
        arguments=[
            Comparison(comparator=Comparator.CONTAIN, attribute="tags", value="odd"),
            Comparison(comparator=Comparator.NIN, attribute="n", value=[1]),
        ],
    )
    query, options = VersoTranslator().visit_structured_query(
        StructuredQuery(query="print", filter=where)
    )
    assert query == "print"
    for metadata, wanted in (
        ({"tags": ["odd"], "n": 2}, False),
        ({"tags": ["odd"], "n": 1}, True),
        ({"tags": []}, True),
    ):
        assert matches(options["filter"], metadata=metadata, time=None, id="x") == wanted
