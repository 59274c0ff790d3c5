"""Verso as encoder, reranker and search engine of MTEB, over HTTP."""

from verso_mteb.encoder import VersoEncoder
from verso_mteb.reranker import VersoReranker
from verso_mteb.search import VersoSearch

__all__ = ["VersoEncoder", "VersoReranker", "VersoSearch"]
