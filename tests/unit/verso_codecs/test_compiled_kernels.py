"""The compiled kernels do what the same functions do in plain Python."""

import os
import subprocess
import sys
from pathlib import Path

from verso_codecs import coder

PROGRAM = """
import hashlib
import numpy as np
from verso_codecs import coder, history, integer_tables, mixture, mixture_fit, mixture_model
from verso_codecs import ngram, ranks

rng = np.random.default_rng(5)
chances = rng.integers(1, 65536, 2000).astype(np.uint16)
payload = coder.encode((rng.random(2000) * 65536 < chances).astype(np.uint8), chances)
state, data = np.zeros(coder.STATE_SIZE, np.int64), np.frombuffer(rng.bytes(300), np.uint8)
coder.open_payload(state, data, 0, 300)
print(payload.hex(), [int(coder.decode_bit(state, data, int(c))) for c in chances])

logits = rng.normal(0, 2, (30, 40)).astype(np.float32)
confidence = np.linspace(-4, 4, 30).astype(np.float32)
targets = logits.argsort(axis=1)[np.arange(30), -1 - np.arange(30) % 3].astype(np.int32)
events = ranks.events(logits, confidence, targets=targets, epsilon=0.004)
tables = ranks.RankTables.fit([events] * 20, vocab=40, confidence_epsilon=0.004)
payload = ranks.encode_events(events, tables, confidence_epsilon=0.004)
streams, row = ranks.Streams([payload], tables), np.zeros(1, np.int32)
tokens = [streams.step(row, logits[t : t + 1], confidence[t : t + 1]).item() for t in range(30)]
print(payload.hex(), tables.edges.tolist(), tokens == targets.tolist())

texts = [b"disk %d of node %d was full\\n" % (n % 3, n) for n in range(12)]
tables = ngram.NgramTables.fit(texts, heldout=texts[:3], widths=(6,) * 8, counting_width=8)
for text in (b"", texts[0], b"disk full disk full", bytes(range(0, 256, 7))):
    payload = ngram.encode(text, tables)
    print(payload.hex(), ngram.decode(payload, tables) == text)
print(hashlib.sha256(tables.model.table.tobytes()).hexdigest())

texts = [b"1117838570 node-%d 2005.06.03-22.4%d.50 node-%d down" % (n, n, n) for n in range(6)]
counted = history.empty(10, size_bytes=400, clock_shift_s=3600)
history.count_texts(counted, texts)
blank = mixture_fit.unmixed()
mixing = mixture_model.Mixing(
    rng.integers(-999, 999, blank.stretches.shape).astype(np.int16),
    rng.integers(-1999, 1999, blank.weights.shape).astype(np.int32),
    rng.integers(-999, 999, blank.end_stretches.shape).astype(np.int16),
    rng.integers(-9999, 9999, blank.end_weights.shape).astype(np.int32),
)
made = mixture.MixtureTables(
    tuple(texts), mixture_model.Tables(tables.model, counted, mixing)
)
for text in (b"", texts[1], b"1117838571000 node-7 2005-06-03", bytes(range(0, 256, 7))):
    payload = mixture.encode(text, made)
    print(payload.hex(), mixture.decode(payload, made) == text)
print([hashlib.sha256(np.asarray(part).tobytes()).hexdigest() for part in counted])

table = np.concatenate([rng.integers(-9, 9, (4, 5)), rng.integers(-(1 << 38), 1 << 38, (2, 5))])
table[2] = 0
payload = integer_tables.encode(table, block=4)
again = integer_tables.decode(payload, table.shape, block=4)
print(payload.hex(), np.array_equal(again, table))
"""


def run(*, compiled: bool) -> str:
    """Run the program; warnings, such as of an integer overflow, are errors."""
    environment = {
        **os.environ,
        "NUMBA_DISABLE_JIT": "0" if compiled else "1",
        "PYTHONPATH": str(Path(coder.__file__).parents[1]),
    }
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_compiled_kernels_and_plain_python_agree() -> None:
    """The same functions run uncompiled are the reference: nothing wraps, nothing is a float."""
    assert run(compiled=True) == run(compiled=False)
