"""Look for a text that a codec does not reconstruct, for a given time.

Texts are log lines and lines of values (numbers, identifiers, addresses, times, paths), cut,
joined, repeated and damaged at random, and random bytes. Each is coded and read back by every
byte codec, and by the decoder with its tokenizer, token by token and under the disturbance that it
must bear, wherever it takes the text. A damaged mixture payload must give some text or
PatchCorrupt, and end. The seed is printed, and given again it repeats the run. Exits with 1 at the
first text that differs.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import fields

from verso_codecs import mixture
from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables
from verso_core import manifest
from verso_core.errors import PatchCorrupt
from verso_core.jobs import Precision
from verso_core.manifest import Artifact
from verso_standalone import sample
from verso_worker.engine.loading import load_service
from verso_worker.records.artifact import MixtureCodec, byte_codecs, cutter
from verso_worker.records.neural import NeuralCodec
from verso_worker.records.space import Space

_BATCH = 16
_HISTORY = 300
_LONGEST = 4000


def texts(rng: random.Random, pool: list[bytes]) -> bytes:
    """Make up one text."""
    text = b"".join(
        rng.choice(pool)
        if rng.random() < 0.5
        else fields.line(rng, fields=rng.randrange(1, 13)).encode()
        for _ in range(rng.randrange(1, 4))
    )
    start = rng.randrange(len(text) + 1)
    text = text[start : start + rng.randrange(1, 400)]
    damaged = bytearray(text * rng.choice((1, 1, 1, 1, 2, 7)))
    for _ in range(rng.choice((0, 0, 1, 5, 50)) if damaged else 0):
        damaged[rng.randrange(len(damaged))] = rng.choice((0, 32, 48, 57, 255, rng.randrange(256)))
    if rng.random() < 0.1:
        damaged = bytearray(rng.randbytes(rng.randrange(300)))
    return bytes(damaged[:_LONGEST])


class Neural:
    """The decoder of an artifact, on vectors as a collection of int8 ones stores them."""

    def __init__(self, artifact: Artifact) -> None:
        about = artifact.manifest.space
        self._service = load_service(artifact, threads=1)
        self._codec = NeuralCodec(self._service, cutter(artifact))
        self._space = Space(Precision.INT8, about.dim, about.int8_scale)

    def wrong(self, found: Sequence[bytes]) -> tuple[bytes | None, int]:
        """Return a text that is not reconstructed, or None, and how many could be coded."""
        vectors = self._space.widen(self._space.round(self._service.encode(found).vectors))
        offers = self._codec.code(found, vectors)
        rows = [row for row, offer in enumerate(offers) if offer is not None]
        given = [offer for offer in offers if offer is not None]
        read = self._codec.read(given, vectors[rows], disturbed=True) if rows else []
        pairs = zip(rows, read, strict=True)
        return next((found[row] for row, text in pairs if text != found[row]), None), len(rows)


def main() -> int:
    """Fuzz until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, default=Path("tests/data/artifact-tiny"))
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    documents = [d.text for d in sample.documents()]
    pool = [t.encode() if isinstance(t, str) else t for t in documents]
    pool = [line for text in pool for line in text.splitlines(keepends=True)]
    artifact = manifest.load(options.artifact)
    general = NgramTables.load(options.artifact / "ngram.npz")
    fitted = MixtureTables.fit(rng.sample(pool, _HISTORY), general)
    coders = {codec.name.lower(): coder for codec, coder in byte_codecs(artifact).items()}
    coders["mixture"] = MixtureCodec(fitted)
    neural = Neural(artifact)
    end, count, of_it_neural = time.monotonic() + 60 * options.minutes, 0, 0
    while time.monotonic() < end:
        batch = [texts(rng, pool) for _ in range(_BATCH)]
        for text in batch:
            for name, coder in coders.items():
                payload = coder.encode(text)
                if coder.decode(payload) != text:
                    print(f"seed {options.seed}: {name} does not give back {text!r}")
                    return 1
            broken = bytearray(mixture.encode(text, fitted) or b"\0")
            broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
            with contextlib.suppress(PatchCorrupt):
                mixture.decode(bytes(broken), fitted, limit_bytes=_LONGEST)
        wrong, coded = neural.wrong(batch)
        if wrong is not None:
            print(f"seed {options.seed}: the decoder does not give back {wrong!r}")
            return 1
        count, of_it_neural = count + _BATCH, of_it_neural + coded
    print(
        f"seed {options.seed}: {count:,} texts came back from {', '.join(coders)}, "
        f"{of_it_neural:,} of them from the decoder too"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
