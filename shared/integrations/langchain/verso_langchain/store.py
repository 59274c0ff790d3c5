"""A collection of the platform as a vector store."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore

from verso_client import Client, Filter
from verso_client import Document as Text
from verso_client.nearest import Nearest, delete, nearest, read, readable
from verso_core.jobs import SearchMode
from verso_core.jobs.reconstruct import StoredText
from verso_langchain.embeddings import VersoEmbeddings
from verso_langchain.filters import filter_of

Where = Filter | Mapping[str, Any] | None
_FOREIGN = (
    "Verso makes its own vectors, because a text is rebuilt from them: the given embeddings are "
    "ignored"
)


class VersoVectorStore(VectorStore):
    """Documents of one collection. A hit is a whole document, by the best of its records.

    Asynchronous methods run these in a thread.

    Args:
        collection: its name; it is there already (``verso collections create NAME``).
        client: of the platform; by default of the one on this machine.
        embedding: ignored, with a warning, unless it is Verso's.
        mode: what searches compare; by default as the collection says.
        rerank: a head that orders the first hits again.
    """

    def __init__(
        self,
        collection: str = "default",
        *,
        client: Client | None = None,
        embedding: Embeddings | None = None,
        mode: SearchMode | None = None,
        rerank: str | None = None,
    ) -> None:
        if not isinstance(embedding, VersoEmbeddings | None):
            warnings.warn(_FOREIGN, stacklevel=2)
        self._client = Client() if client is None else client
        self._collection = collection
        self._mode = mode
        self._rerank = rerank

    @property
    def embeddings(self) -> Embeddings:
        """The platform's own."""
        return VersoEmbeddings(self._client)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Return a store with texts in it; ``kwargs`` are those of the store."""
        store = cls(embedding=embedding, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **_kwargs: Any,
    ) -> list[str]:
        """Store texts and return their ids; of one that is there already the text is replaced.

        Raises:
            VersoError: a text cannot be stored; those before it are.
        """
        given = list(texts)
        names = [name or str(uuid.uuid4()) for name in ids or [None] * len(given)]
        described = metadatas or [{} for _ in given]
        report = self._client.ingest(
            [
                Text(text, id=name, metadata=metadata)
                for text, name, metadata in zip(given, names, described, strict=True)
            ],
            collection=self._collection,
        )
        for failed in report.failed:
            if failed.error is not None:
                raise failed.error.exception()
        return names

    def delete(self, ids: Sequence[str] | None = None, **_kwargs: Any) -> bool:
        """Delete documents; without ids all, for which the key needs the scope ``admin``."""
        if ids is None:
            self._client.delete_matching(
                Filter(field="id", exists=True), collection=self._collection
            )
            return True
        delete(self._client, ids, collection=self._collection)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents of these ids that there are."""
        return [_document(one) for one in read(self._client, ids, collection=self._collection)]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the nearest documents; ``filter`` as :func:`~verso_langchain.filter_of` has it."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **kwargs)]

    def similarity_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: Where = None,  # noqa: A002 - LangChain's word
        **_kwargs: Any,
    ) -> list[tuple[Document, float]]:
        """Return the nearest documents with the scores of their best records."""
        found = self._nearest(query, None, k=k, where=filter)
        return [(_document(one.document), one.score) for one in found]

    def similarity_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        *,
        filter: Where = None,  # noqa: A002 - LangChain's word
        **_kwargs: Any,
    ) -> list[Document]:
        """Return the documents nearest to a vector that the platform made."""
        found = self._nearest(None, embedding, k=k, where=filter)
        return [_document(one.document) for one in found]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        """Hybrid scores are in [0, 1] already, and cosines of texts that are alike."""
        return lambda score: min(1.0, max(0.0, score))

    def _nearest(
        self, query: str | None, vector: list[float] | None, *, k: int, where: Where
    ) -> list[Nearest]:
        return nearest(
            self._client,
            query,
            vector=vector,
            limit=k,
            collection=self._collection,
            filter=filter_of(where),
            mode=self._mode if vector is None else None,
            rerank=self._rerank if vector is None else None,
        )


def _document(stored: StoredText) -> Document:
    metadata = dict(stored.metadata)
    return Document(id=stored.id, page_content=readable(stored), metadata=metadata)
