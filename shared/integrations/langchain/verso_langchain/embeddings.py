"""The platform's vectors as embeddings."""

from __future__ import annotations

from langchain_core.embeddings import Embeddings

from verso_client import Client

_TOGETHER = 256
"""Texts of one request."""


class VersoEmbeddings(Embeddings):
    """Vectors of the platform's model, of unit length.

    Asynchronous methods run these in a thread.

    Args:
        client: of the platform; by default of the one on this machine.
    """

    def __init__(self, client: Client | None = None) -> None:
        self._client = Client() if client is None else client

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of texts, in their order.

        Raises:
            VersoError: a text cannot be embedded.
        """
        found: list[list[float]] = []
        for start in range(0, len(texts), _TOGETHER):
            for one in self._client.embed(texts[start : start + _TOGETHER]):
                if one.error is not None:
                    raise one.error.exception()
                found.append([float(value) for value in one.embedding])
        return found

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a text, which is the same as that of a document."""
        return self.embed_documents([text])[0]
