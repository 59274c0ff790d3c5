"""Verso as vector store and retriever of LlamaIndex.

Verso makes its own vectors, because a text is rebuilt from them: the store ignores the embeddings
of nodes, with a warning. :class:`NoEmbedding` lets an index make none.
"""

from verso_llama_index.embedding import NoEmbedding
from verso_llama_index.filters import filter_of
from verso_llama_index.retriever import VersoRetriever
from verso_llama_index.store import VersoVectorStore

__all__ = ["NoEmbedding", "VersoRetriever", "VersoVectorStore", "filter_of"]
