"""Verso as document store, retriever, embedders and ranker of Haystack.

Verso makes its own vectors, because a text is rebuilt from them: the store ignores the embeddings
of documents, with a warning.
"""

from verso_haystack.embedders import VersoDocumentEmbedder, VersoTextEmbedder
from verso_haystack.filters import filter_of
from verso_haystack.ranker import VersoRanker
from verso_haystack.retriever import VersoRetriever
from verso_haystack.store import VersoDocumentStore

__all__ = [
    "VersoDocumentEmbedder",
    "VersoDocumentStore",
    "VersoRanker",
    "VersoRetriever",
    "VersoTextEmbedder",
    "filter_of",
]
