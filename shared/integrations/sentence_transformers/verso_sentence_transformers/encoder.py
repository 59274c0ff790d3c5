"""An encoder by its methods, not by its class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from verso_client import Client

Vectors = npt.NDArray[np.float32]
_TOGETHER = 256
"""Texts of one request."""


class VersoEncoder:
    """Encodes texts over HTTP. Queries and documents have the same vectors, of unit length.

    Args:
        client: of the platform; by default of the one on this machine.
    """

    similarity_fn_name = "cosine"

    def __init__(self, client: Client | None = None) -> None:
        self._client = Client() if client is None else client
        self._dim: int | None = None

    def encode(
        self,
        sentences: str | Sequence[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = _TOGETHER,
        *,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = True,
        truncate_dim: int | None = None,
        **_kwargs: Any,
    ) -> Any:
        """Return the vectors of texts. Shape: (n, dim), float32; of a single text (dim,).

        Args:
            sentences: texts, or one.
            prompt_name: the model has no prompts.
            prompt: stands before each text.
            batch_size: texts of one request.
            convert_to_numpy: an array; else a list of arrays.
            convert_to_tensor: a tensor of torch.
            normalize_embeddings: vectors are of unit length always, unless they are truncated.
            truncate_dim: keep the first of each vector's numbers.

        Raises:
            ValueError: a prompt was named.
            VersoError: a text cannot be embedded.
        """
        if prompt_name is not None:
            raise ValueError(
                f"expected no prompt_name: the model has no prompts, got {prompt_name!r}"
            )
        texts = [sentences] if isinstance(sentences, str) else list(sentences)
        found = self._vectors([(prompt or "") + text for text in texts], batch_size)
        if truncate_dim is not None:
            found = found[:, :truncate_dim]
            if normalize_embeddings:
                found = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        shaped = found[0] if isinstance(sentences, str) else found
        if convert_to_tensor:
            import torch

            return torch.from_numpy(shaped)
        return shaped if convert_to_numpy or isinstance(sentences, str) else list(shaped)

    encode_query = encode
    encode_document = encode

    def get_sentence_embedding_dimension(self) -> int:
        """Return how many numbers a vector has."""
        if self._dim is None:
            self._dim = len(self._vectors(["a"], 1)[0])
        return self._dim

    get_embedding_dimension = get_sentence_embedding_dimension

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the cosines of all pairs. Shape: (n, dim) and (m, dim) give (n, m)."""
        return embeddings1 @ embeddings2.T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the cosines of pairs. Shape: (n, dim) twice gives (n,)."""
        return (embeddings1 * embeddings2).sum(-1)

    @property
    def model_card_data(self) -> _NoCard:
        """Where evaluators leave their figures, which are not kept."""
        return _NoCard()

    def _vectors(self, texts: Sequence[str], together: int) -> Vectors:
        rows: list[list[float]] = []
        for start in range(0, len(texts), together):
            for one in self._client.embed(texts[start : start + together]):
                if one.error is not None:
                    raise one.error.exception()
                rows.append(list(one.embedding))
        # Of no texts the platform makes no vectors that would say their length.
        return np.asarray(rows, np.float32).reshape(
            len(texts), -1 if rows else self.get_sentence_embedding_dimension()
        )


class _NoCard:
    def set_evaluation_metrics(self, *_: Any) -> None:
        """Do nothing."""
