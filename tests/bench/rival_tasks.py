"""A rival of ``bench_serve``: plain Celery, one task for each text, results in the same Valkey.

Started as ``celery --app rival_tasks worker``; broker and model are named in the environment.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from celery import Celery
from rival_server import load_encoder

from verso_worker.engine.encoder import Encoder

app = Celery("rival", broker=os.environ["RIVAL_BROKER"], backend=os.environ["RIVAL_BROKER"])
app.conf.update(worker_prefetch_multiplier=4, task_acks_late=False)


@cache
def _encoder() -> Encoder:
    folder, threads = Path(os.environ["RIVAL_ARTIFACT"]), int(os.environ["RIVAL_THREADS"])
    return load_encoder(folder, threads=threads)


@app.task(name="rival.embed")  # type: ignore[untyped-decorator]  # Celery has no types
def embed(text: str) -> list[float]:
    """Return the vector of a text."""
    encoder = _encoder()
    row: list[float] = encoder.run(encoder.tokenise([text.encode()]))[0].tolist()
    return row
