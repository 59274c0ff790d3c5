"""The whole engine: texts are ingested, dropped, and found by vectors and words."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mteb._create_dataloaders import create_dataloader
from mteb.types import PromptType, RetrievalOutputType

from verso_client import Client, Document, Filter
from verso_client.nearest import nearest
from verso_core.jobs import SearchMode
from verso_mteb.meta import meta

_ASKED = 256
"""Most values of a filter."""


class VersoSearch:
    """Searches a collection of its own, which the next corpus and :meth:`close` delete.

    Args:
        client: of the platform; by default of the one on this machine.
        mode: what is compared; by default vectors and words.
        rerank: a head that orders the first hits again.
    """

    def __init__(
        self,
        client: Client | None = None,
        *,
        mode: SearchMode | None = None,
        rerank: str | None = None,
    ) -> None:
        self._client = Client() if client is None else client
        self._mode = mode
        self._rerank = rerank
        self._collection: str | None = None
        self._names: list[str] = []
        name = "-".join(["search", mode or SearchMode.HYBRID, *([rerank] if rerank else [])])
        self.mteb_model_meta = meta(name, kind="hybrid")

    def index(self, corpus: Any, *, encode_kwargs: Mapping[str, Any], **about: Any) -> None:
        """Ingest a corpus into a new collection.

        Raises:
            VersoError: a text cannot be stored.
        """
        self.close()
        self._collection = f"mteb-{uuid.uuid4().hex[:16]}"
        self._client.create_collection(self._collection)
        self._names = list(corpus["id"])
        texts = _texts(corpus, PromptType.document, encode_kwargs, about)
        # A corpus may use ids that Verso does not take.
        documents = (Document(text, id=f"d{n}") for n, text in enumerate(texts))
        for failed in self._client.ingest(documents, collection=self._collection).failed:
            if failed.error is not None:
                raise failed.error.exception()

    def search(
        self,
        queries: Any,
        *,
        top_k: int,
        encode_kwargs: Mapping[str, Any],
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **about: Any,
    ) -> RetrievalOutputType:
        """Return the best documents of each query, or of its candidates, with their scores."""
        places = {name: n for n, name in enumerate(self._names)}
        found: RetrievalOutputType = {}
        texts = _texts(queries, PromptType.query, encode_kwargs, about)
        for name, text in zip(queries["id"], texts, strict=True):
            candidates = None if top_ranked is None else top_ranked.get(name, [])
            found[name] = {}
            for where in _filters(candidates, places):
                found[name] |= self._found(text, where, top_k)
        return found

    def close(self) -> None:
        """Delete the collection."""
        if self._collection is not None:
            self._client.delete_collection(self._collection)
            self._collection = None

    def _found(self, text: str, where: Filter | None, top_k: int) -> dict[str, float]:
        assert self._collection is not None
        hits = nearest(
            self._client,
            text,
            limit=top_k,
            collection=self._collection,
            filter=where,
            mode=self._mode,
            rerank=self._rerank,
        )
        return {self._names[int(hit.document.id[1:])]: hit.score for hit in hits}


def _filters(
    candidates: Sequence[str] | None, places: Mapping[str, int]
) -> Iterator[Filter | None]:
    if candidates is None:
        yield None
        return
    for start in range(0, len(candidates), _ASKED):
        part = candidates[start : start + _ASKED]
        yield Filter.one_of("id", [f"d{places[name]}" for name in part])


def _texts(
    rows: Any, kind: PromptType, encode_kwargs: Mapping[str, Any], about: Mapping[str, Any]
) -> Iterator[str]:
    """Yield texts as MTEB puts them together: title and text, instruction and query."""
    loader = create_dataloader(
        rows,
        task_metadata=about["task_metadata"],
        prompt_type=kind,
        num_proc=about.get("num_proc"),
        **encode_kwargs,
    )
    for batch in loader:
        yield from batch["text"]
