"""The platform's vectors, for all tasks of MTEB that need an encoder."""

from __future__ import annotations

from typing import Any

import numpy as np
from mteb.models.abs_encoder import AbsEncoder
from mteb.types import Array
from verso_sentence_transformers import VersoEncoder as Encoder

from verso_client import Client
from verso_mteb.meta import meta


class VersoEncoder(AbsEncoder):
    """Encodes texts over HTTP, without prompts.

    Args:
        client: of the platform; by default of the one on this machine.
    """

    def __init__(self, client: Client | None = None) -> None:
        self.model = Encoder(client)
        self.mteb_model_meta = meta("encoder", kind="dense")

    def encode(self, inputs: Any, **_kwargs: Any) -> Array:
        """Return the vectors of batches of texts. Shape: (n, dim), float32."""
        parts = [self.model.encode(list(batch["text"])) for batch in inputs]
        return np.concatenate(parts)
