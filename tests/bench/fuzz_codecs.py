"""Look for a text that does not come back: every byte codec, for as long as asked.

Texts are log lines, cut, joined, repeated and damaged at random, and random bytes. Each is coded
and read back; a damaged mixture payload must give some text or PatchCorrupt, and end. The seed
is printed, and given again it repeats the run. Exits with 1 at the first text that differs.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from pathlib import Path

from verso_codecs import mixture
from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables
from verso_core import manifest
from verso_core.errors import PatchCorrupt
from verso_standalone import sample
from verso_worker.artifact import MixtureCodec, byte_codecs

_HISTORY = 300
_LONGEST = 4000


def texts(rng: random.Random, pool: list[bytes]) -> bytes:
    """Make up one text."""
    text = b"".join(rng.choice(pool) for _ in range(rng.randrange(1, 4)))
    start = rng.randrange(len(text) + 1)
    text = text[start : start + rng.randrange(1, 400)]
    damaged = bytearray(text * rng.choice((1, 1, 1, 1, 2, 7)))
    for _ in range(rng.choice((0, 0, 1, 5, 50)) if damaged else 0):
        damaged[rng.randrange(len(damaged))] = rng.choice((0, 32, 48, 57, 255, rng.randrange(256)))
    if rng.random() < 0.1:
        damaged = bytearray(rng.randbytes(rng.randrange(300)))
    return bytes(damaged[:_LONGEST])


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
    general = NgramTables.load(options.artifact / "ngram.npz")
    codecs = dict(byte_codecs(manifest.load(options.artifact)).items())
    fitted = MixtureTables.fit(rng.sample(pool, _HISTORY), general)
    coders = {codec.name.lower(): coder for codec, coder in codecs.items()}
    coders["mixture"] = MixtureCodec(fitted)
    end, count = time.monotonic() + 60 * options.minutes, 0
    while time.monotonic() < end:
        text = texts(rng, pool)
        for name, coder in coders.items():
            payload = coder.encode(text)
            if coder.decode(payload) != text:
                print(f"seed {options.seed}: {name} does not give back {text!r}")
                return 1
        broken = bytearray(mixture.encode(text, fitted) or b"\0")
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        with contextlib.suppress(PatchCorrupt):
            mixture.decode(bytes(broken), fitted, limit_bytes=_LONGEST)
        count += 1
    print(f"seed {options.seed}: {count:,} texts came back from {', '.join(coders)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
