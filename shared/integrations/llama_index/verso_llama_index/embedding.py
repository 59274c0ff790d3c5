"""What an index uses in place of a model: the platform makes the vectors."""

from __future__ import annotations

from llama_index.core.base.embeddings.base import BaseEmbedding


class NoEmbedding(BaseEmbedding):
    """Makes empty embeddings."""

    def _get_text_embedding(self, text: str) -> list[float]:
        _ = text
        return []

    def _get_query_embedding(self, query: str) -> list[float]:
        _ = query
        return []

    async def _aget_query_embedding(self, query: str) -> list[float]:
        _ = query
        return []
