"""Orders documents again, by a head of the platform."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from haystack import component, default_from_dict, default_to_dict
from haystack.dataclasses import Document
from haystack.utils import Secret

from verso_client.exchange import DEFAULT_URL
from verso_haystack.connection import KEY, Connection, loaded


@component
class VersoRanker:
    """Orders documents by how well they fit a query.

    Args:
        head: a head that scores pairs.
        top_k: how many are kept.
        url: address of the gateway.
        api_key: where keys are used.
    """

    def __init__(
        self,
        head: str = "pairs",
        *,
        top_k: int = 10,
        url: str = DEFAULT_URL,
        api_key: Secret | None = KEY,
    ) -> None:
        self._head = head
        self._top_k = top_k
        self._connection = Connection(url, api_key)

    def to_dict(self) -> dict[str, Any]:
        """Return the component as a saved pipeline has it."""
        return default_to_dict(self, head=self._head, top_k=self._top_k, **self._connection.saved())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the component of a saved pipeline."""
        found: Self = default_from_dict(cls, {**data, "init_parameters": loaded(data)})
        return found

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the best documents, best first, with the head's scores."""
        if not documents:
            return {"documents": []}
        texts = [one.content or "" for one in documents]
        kept = min(top_k or self._top_k, len(documents))
        ranked = self._connection.client.rerank(query, texts, head=self._head, top_n=kept)
        best = [replace(documents[one.index], score=one.relevance_score) for one in ranked]
        return {"documents": best}
