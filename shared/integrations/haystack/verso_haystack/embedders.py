"""The platform's vectors as embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

from haystack import component, default_from_dict, default_to_dict
from haystack.dataclasses import Document
from haystack.utils import Secret

from verso_client import Client
from verso_client.exchange import DEFAULT_URL
from verso_haystack.connection import KEY, Connection, loaded

_TOGETHER = 256


def _vectors(client: Client, texts: Sequence[str]) -> list[list[float]]:
    found: list[list[float]] = []
    for start in range(0, len(texts), _TOGETHER):
        for one in client.embed(texts[start : start + _TOGETHER]):
            if one.error is not None:
                raise one.error.exception()
            found.append([float(value) for value in one.embedding])
    return found


@component
class VersoTextEmbedder:
    """Makes the vector of a text, of unit length.

    Args:
        url: address of the gateway.
        api_key: where keys are used.
    """

    def __init__(self, *, url: str = DEFAULT_URL, api_key: Secret | None = KEY) -> None:
        self._connection = Connection(url, api_key)

    def to_dict(self) -> dict[str, Any]:
        """Return the component as a saved pipeline has it."""
        return default_to_dict(self, **self._connection.saved())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the component of a saved pipeline."""
        found: Self = default_from_dict(cls, {**data, "init_parameters": loaded(data)})
        return found

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        """Return the vector of a text."""
        [vector] = _vectors(self._connection.client, [text])
        return {"embedding": vector}


@component
class VersoDocumentEmbedder:
    """Makes the vectors of documents, for stores that are not Verso's.

    Args:
        url: address of the gateway.
        api_key: where keys are used.
    """

    def __init__(self, *, url: str = DEFAULT_URL, api_key: Secret | None = KEY) -> None:
        self._connection = Connection(url, api_key)

    def to_dict(self) -> dict[str, Any]:
        """Return the component as a saved pipeline has it."""
        return default_to_dict(self, **self._connection.saved())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the component of a saved pipeline."""
        found: Self = default_from_dict(cls, {**data, "init_parameters": loaded(data)})
        return found

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Return the documents with their vectors."""
        vectors = _vectors(self._connection.client, [one.content or "" for one in documents])
        pairs = zip(documents, vectors, strict=True)
        return {"documents": [replace(one, embedding=vector) for one, vector in pairs]}
