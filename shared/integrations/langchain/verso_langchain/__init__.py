"""Verso as embeddings, vector store and retriever of LangChain.

Verso makes its own vectors, because a text is rebuilt from them: a store ignores the embeddings
that it is given, with a warning.
"""

from verso_langchain.embeddings import VersoEmbeddings
from verso_langchain.filters import VersoTranslator, filter_of
from verso_langchain.retriever import VersoRetriever
from verso_langchain.store import VersoVectorStore

__all__ = [
    "VersoEmbeddings",
    "VersoRetriever",
    "VersoTranslator",
    "VersoVectorStore",
    "filter_of",
]
