"""Every text task of MTEB's mock run, over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mteb
import pytest
from datasets import Dataset
from mteb.mocks import ALL_MOCK_TASK_TEST_GRID
from mteb.mocks.mock_run import get_compatible_mock_tasks
from mteb.results.task_result import TaskError, TaskResult
from verso_mteb import VersoEncoder, VersoReranker, VersoSearch

from verso_client import Client
from verso_core.jobs import SearchMode

pytestmark = [pytest.mark.timeout(1800), pytest.mark.filterwarnings("ignore")]
NO_CANDIDATES = "CrossEncoder search requires top_ranked documents for reranking."
"""What MTEB says of every cross-encoder where a task of search gives it no candidates."""


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (VersoEncoder, 28),
        (lambda client: VersoReranker("pairs", client), 4),
        (VersoSearch, 9),
    ],
    ids=["encoder", "reranker", "search"],
)
def test_every_text_task_passes(
    client: Client, make: Callable[[Client], Any], expected: int
) -> None:
    model = make(client)
    results = mteb.mock_run(model).task_results
    names = {task.metadata.name for task in get_compatible_mock_tasks(model)}
    failed = {
        name: one
        for name, one in results.items()
        if isinstance(one, TaskError) and one.exception != NO_CANDIDATES
    }
    assert failed == {}
    assert names == {name for name, one in results.items() if one is not None}
    assert sum(isinstance(one, TaskResult) for one in results.values()) == expected


def test_the_engine_finds_documents_by_the_ids_of_the_corpus(client: Client) -> None:
    before = {one.name for one in client.collections()}
    search = VersoSearch(client, mode=SearchMode.DENSE)
    task = next(one for one in ALL_MOCK_TASK_TEST_GRID if one.metadata.name == "MockRetrievalTask")
    about: dict[str, Any] = {
        "task_metadata": task.metadata,
        "hf_split": "test",
        "hf_subset": "default",
    }
    about |= {"encode_kwargs": {}, "num_proc": None}
    texts = {"a#1": "The disk is full.", "": "Rain is expected.", "x" * 300: "A user logs in."}
    rows = [{"id": name, "title": "", "text": text} for name, text in texts.items()]
    queries = Dataset.from_list([{"id": "q", "text": "weather"}])
    search.index(Dataset.from_list(rows), **about)
    assert list(search.search(queries, top_k=1, **about)["q"]) == [""]
    among = {"q": ["a#1", "x" * 300]}
    assert set(search.search(queries, top_k=3, top_ranked=among, **about)["q"]) == set(among["q"])
    search.close()
    assert {one.name for one in client.collections()} == before
