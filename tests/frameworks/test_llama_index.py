"""LlamaIndex's index and retrievers on a collection, and filters against its simple store."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import NodeRelationship, TextNode
from llama_index.core.vector_stores import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from llama_index.core.vector_stores.utils import build_metadata_filter_fn
from verso_llama_index import NoEmbedding, VersoRetriever, VersoVectorStore, filter_of

from verso_core.jobs.filters.compiled import matches

TEXTS = ["The disk is full.", "The certificate expires in May.", "Rain is expected."]


@pytest.fixture
def store(url: str, collection: str) -> VersoVectorStore:
    """An empty store."""
    return VersoVectorStore(collection, url=url)


def only(key: str, value: Any) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value)])


def test_an_index_inserts_retrieves_and_deletes_without_embeddings(
    store: VersoVectorStore, recwarn: pytest.WarningsRecorder
) -> None:
    index = VectorStoreIndex.from_vector_store(store, embed_model=NoEmbedding())
    for n, text in enumerate(TEXTS):
        index.insert(Document(id_=f"d{n}", text=text, metadata={"n": n}))
    assert not [one for one in recwarn if "own vectors" in str(one.message)]
    query = "When does the certificate expire?"
    [best, _] = index.as_retriever(similarity_top_k=2).retrieve(query)
    assert best.node.get_content() == TEXTS[1]
    assert best.node.metadata == {"n": 1}
    assert best.node.ref_doc_id == "d1"
    [found] = index.as_retriever(filters=only("n", 0)).retrieve(query)
    assert found.node.get_content() == TEXTS[0]
    index.delete_ref_doc("d1")
    assert {one.ref_doc_id for one in store.get_nodes()} == {"d0", "d2"}


async def test_nodes_come_back_as_they_were(store: VersoVectorStore) -> None:
    document = Document(id_="long", text=" ".join(TEXTS * 3))
    nodes = [
        TextNode(id_=f"n{n}", text=text, start_char_idx=n, end_char_idx=n + 9, metadata={"n": n})
        for n, text in enumerate(TEXTS)
    ]
    nodes[0].excluded_llm_metadata_keys = ["n"]
    for node, other in pairwise(nodes):
        node.relationships[NodeRelationship.NEXT] = other.as_related_node_info()
    for node in nodes:
        node.relationships[NodeRelationship.SOURCE] = document.as_related_node_info()
    assert await store.async_add(nodes) == ["n0", "n1", "n2"]
    found = await store.aget_nodes(["n2", "n0", "nope"])
    assert [one.node_id for one in found] == ["n2", "n0"]
    assert found[1].get_content() == TEXTS[0]
    assert (found[1].start_char_idx, found[1].end_char_idx) == (0, 9)  # type: ignore[attr-defined]
    assert [one.excluded_llm_metadata_keys for one in found] == [[], ["n"]]
    assert found[1].next_node is not None
    assert found[1].next_node.node_id == "n1"
    [best] = await VersoRetriever(store, similarity_top_k=1).aretrieve("weather")
    assert best.node.get_content() == TEXTS[2]
    query = VectorStoreQuery(
        query_str="full", similarity_top_k=3, doc_ids=["long"], node_ids=["n1"]
    )
    assert (await store.aquery(query)).ids == ["n1"]
    await store.adelete_nodes(["n0", "n1"], only("n", 1))
    assert {one.node_id for one in store.get_nodes()} == {"n0", "n2"}
    await store.aclear()
    assert store.get_nodes() == []


def test_a_pipeline_stores_what_has_an_embedding(store: VersoVectorStore) -> None:
    pipeline = IngestionPipeline(transformations=[NoEmbedding()], vector_store=store)
    pipeline.run(documents=[Document(id_="a", text=TEXTS[0])])
    assert [one.get_content() for one in store.get_nodes()] == [TEXTS[0]]


def test_a_filter_may_have_more_values_than_leaves(store: VersoVectorStore) -> None:
    store.add([TextNode(id_=f"n{n}", text=text, metadata={"n": n}) for n, text in enumerate(TEXTS)])
    values = [0, *range(10, 200), 2]
    for operator, wanted in ((FilterOperator.IN, {"n0", "n2"}), (FilterOperator.NIN, {"n1"})):
        asked = MetadataFilter(key="n", value=values, operator=operator)
        found = store.get_nodes(filters=MetadataFilters(filters=[asked]))
        assert {one.node_id for one in found} == wanted


def test_foreign_embeddings_are_ignored_with_a_warning(store: VersoVectorStore) -> None:
    index = VectorStoreIndex.from_vector_store(store, embed_model=MockEmbedding(embed_dim=3))
    with pytest.warns(UserWarning, match="makes its own vectors"):
        index.insert(Document(text=TEXTS[0]))
    with pytest.raises(ValueError, match="with its text"):
        store.query(VectorStoreQuery(query_embedding=[0.1] * 3))
    with pytest.raises(ValueError, match="got mmr"):
        store.query(VectorStoreQuery(query_str="a", mode=VectorStoreQueryMode.MMR))


KEYS = st.sampled_from(["a", "b", "id"])
PLAIN = st.one_of(st.integers(-2, 2), st.sampled_from([0.5, 1.0]), st.sampled_from(["", "x", "y"]))
STRINGS = st.lists(st.sampled_from(["x", "y", "z"]), max_size=3)
META = st.dictionaries(KEYS, st.one_of(PLAIN, st.none(), STRINGS))


def one(operators: list[FilterOperator], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(MetadataFilter, key=KEYS, operator=st.sampled_from(operators), value=values)


LEAVES = st.one_of(
    one([FilterOperator.EQ, FilterOperator.NE], st.one_of(PLAIN, st.none())),
    one([FilterOperator.IN, FilterOperator.NIN], st.lists(st.integers(-2, 2), max_size=3)),
    one([FilterOperator.IN, FilterOperator.NIN], STRINGS),
    one([FilterOperator.ANY, FilterOperator.ALL], STRINGS),
    one([FilterOperator.CONTAINS], st.sampled_from(["x", "y"])),
    one([FilterOperator.IS_EMPTY], st.none()),
    one(
        [FilterOperator.GT, FilterOperator.GTE, FilterOperator.LT, FilterOperator.LTE],
        st.integers(-2, 2),
    ),
)
LISTS = {FilterOperator.ANY, FilterOperator.ALL, FilterOperator.CONTAINS, FilterOperator.IS_EMPTY}


@given(
    filters=st.builds(
        MetadataFilters,
        filters=st.lists(LEAVES, max_size=4),
        condition=st.sampled_from(FilterCondition),
    ),
    metadata=META,
)
def test_a_filter_means_what_it_means_in_the_simple_store(
    filters: MetadataFilters, metadata: dict[str, Any]
) -> None:
    """But for the deviations that the README names: lists, and parts of a text."""
    for part in filters.filters:
        assert isinstance(part, MetadataFilter)
        stored = metadata.get(part.key)
        assume(
            stored is None
            or part.operator is FilterOperator.IS_EMPTY
            or isinstance(stored, list) == (part.operator in LISTS)
        )
    try:
        wanted = build_metadata_filter_fn(lambda _: metadata, filters)("x")
    except TypeError:  # it compares a text with a number
        return
    assert matches(filter_of(filters), metadata=metadata, time=None, id="x") == wanted


def test_filters_may_be_nested() -> None:
    inner = MetadataFilters(filters=[only("a", 1), only("b", "x")], condition=FilterCondition.OR)
    outer = MetadataFilters(filters=[inner], condition=FilterCondition.NOT)
    for metadata, wanted in (({"a": 1}, False), ({"b": "x"}, False), ({"a": 2}, True)):
        assert matches(filter_of(outer), metadata=metadata, time=None, id="x") == wanted


@pytest.mark.parametrize(
    ("operator", "value"),
    [
        (FilterOperator.TEXT_MATCH, "x"),
        (FilterOperator.GT, "x"),
        (FilterOperator.EQ, ["x"]),
        (FilterOperator.IN, "x"),
    ],
)
def test_what_no_filter_says_is_refused(operator: FilterOperator, value: Any) -> None:
    asked = MetadataFilter(key="a", operator=operator, value=value)
    with pytest.raises(ValueError, match="expected"):
        filter_of(MetadataFilters(filters=[asked]))


def test_a_store_is_pickled_with_its_key_and_saved_without_it(
    store: VersoVectorStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.add([TextNode(id_="a", text=TEXTS[0])])
    keyed = VersoVectorStore(store.collection, url=store.url, api_key="vk_secret", rerank="r")
    unpickled = pickle.loads(pickle.dumps(keyed))  # noqa: S301 - made right here
    copies = [unpickled, copy.deepcopy(keyed), copy.copy(keyed)]
    saved, text = keyed.to_dict(), keyed.to_json()
    assert "vk_secret" not in f"{keyed!r} {saved} {text}"
    copies.append(VersoVectorStore.from_dict(saved, api_key="vk_secret"))
    copies.append(VersoVectorStore.from_json(text, api_key="vk_secret"))
    for one in copies:
        assert (one.api_key, one.rerank) == ("vk_secret", "r")
        assert [node.get_content() for node in one.get_nodes()] == [TEXTS[0]]
    assert VersoVectorStore.from_dict(saved).api_key is None
    assert not caplog.records


def test_ids_that_no_node_can_have_and_keys_of_the_store_are_told(store: VersoVectorStore) -> None:
    store.add([TextNode(id_=f"n{n}", text=text) for n, text in enumerate(TEXTS)])
    assert [one.node_id for one in store.get_nodes(["", "n0#0", "n1"])] == ["n1"]
    store.delete_nodes(["", "n0#0", "x" * 257, "n0"])
    assert {one.node_id for one in store.get_nodes()} == {"n1", "n2"}
    assert store.query(VectorStoreQuery(query_str="disk", similarity_top_k=0)).ids == []
    with pytest.raises(ValueError, match="_place"):
        store.add([TextNode(text="a", metadata={"_place": "here"})])
