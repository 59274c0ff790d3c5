"""The platform's vectors where code expects an encoder of sentence-transformers.

``VersoEncoder`` has the methods of ``SentenceTransformer`` that use a model and none that change
it. It needs NumPy; torch only where tensors are asked for.
"""

from verso_sentence_transformers.encoder import VersoEncoder

__all__ = ["VersoEncoder"]
