"""A rival of ``bench_serve``: FastAPI in front of one ONNX session, nothing between.

This is what a reader of the two libraries' tutorials would write: one request is one run of the
graph on a thread of the server's pool. Run by uvicorn; the model is named in ``RIVAL_ARTIFACT``.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from pydantic import BaseModel

from verso_core import manifest
from verso_worker.engine.encoder import Encoder
from verso_worker.engine.sessions import Device, Load, Sessions, open_session


def load_encoder(folder: Path, *, threads: int) -> Encoder:
    """Open the encoder of an artifact as the engine does."""
    artifact = manifest.load(folder)
    session = open_session(
        artifact.data["encoder.onnx"],
        "encoder.onnx",
        threads=threads,
        device=Device.CPU,
        optimisation=artifact.manifest.codec.profile.optimisation,
    )
    alone = Sessions(session, None, load=Load())
    return Encoder(alone, artifact.data["encoder_tokenizer.json"], artifact.manifest.space)


class Body(BaseModel):
    """What is asked: one or more texts."""

    texts: list[str]


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    folder, threads = Path(os.environ["RIVAL_ARTIFACT"]), int(os.environ["RIVAL_THREADS"])
    app.state.encoder = load_encoder(folder, threads=threads)
    yield


app = FastAPI(lifespan=_lifespan)


@app.post("/embed")
def embed(body: Body) -> list[list[float]]:
    """Return a vector for each text."""
    encoder: Encoder = app.state.encoder
    vectors = encoder.run(encoder.tokenise([text.encode() for text in body.texts]))
    rows: list[list[float]] = vectors.tolist()
    return rows
