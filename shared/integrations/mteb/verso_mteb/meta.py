"""What MTEB notes of a model."""

from __future__ import annotations

from typing import Any

from mteb.models.model_meta import ModelMeta, ScoringFunction

DISTRIBUTION = "verso-retrieval"


def meta(name: str, *, kind: str, **about: Any) -> ModelMeta:
    """Return what is known of a part of the platform.

    Args:
        name: of the part.
        kind: ``dense``, ``cross-encoder`` or ``hybrid``.
        about: further fields of the meta data.
    """
    return ModelMeta.create_empty(
        {
            "name": f"verso/{name}",
            "framework": ["API"],
            "similarity_fn_name": ScoringFunction.COSINE,
            "model_type": [kind],
            "modalities": ["text"],
            "license": "apache-2.0",
            "open_weights": True,
            **about,
        }
    )
