"""A retriever of the documents of a store."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from haystack import component, default_from_dict, default_to_dict
from haystack.dataclasses import Document
from haystack.document_stores.types import FilterPolicy
from haystack.document_stores.types.filter_policy import apply_filter_policy

from verso_core.jobs import SearchMode
from verso_haystack.store import VersoDocumentStore


@component
class VersoRetriever:
    """Retrieves the documents nearest to a query, by vectors and words as the collection says.

    Args:
        document_store: where they are.
        filters: which documents are meant.
        top_k: how many.
        mode: what is compared: ``dense``, ``sparse`` or ``hybrid``.
        filter_policy: whether filters of a run replace those above or join them.
    """

    def __init__(
        self,
        document_store: VersoDocumentStore,
        *,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        mode: str | None = None,
        filter_policy: str | FilterPolicy = FilterPolicy.REPLACE,
    ) -> None:
        self._store = document_store
        self._filters = filters
        self._top_k = top_k
        self._mode = None if mode is None else SearchMode(mode)
        self._policy = (
            filter_policy
            if isinstance(filter_policy, FilterPolicy)
            else FilterPolicy.from_str(filter_policy)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the component as a saved pipeline has it."""
        return default_to_dict(
            self,
            document_store=self._store.to_dict(),
            filters=self._filters,
            top_k=self._top_k,
            mode=None if self._mode is None else self._mode.value,
            filter_policy=self._policy.value,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the component of a saved pipeline."""
        parameters = dict(data["init_parameters"])
        parameters["document_store"] = VersoDocumentStore.from_dict(parameters["document_store"])
        found: Self = default_from_dict(cls, {**data, "init_parameters": parameters})
        return found

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the documents, best first, with their scores."""
        where = apply_filter_policy(self._policy, self._filters, filters)
        found = self._store.nearest(
            query, filters=where, top_k=top_k or self._top_k, mode=self._mode
        )
        return {"documents": found}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the documents, best first, with their scores."""
        return await asyncio.to_thread(self.run, query, filters, top_k)
