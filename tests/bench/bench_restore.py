"""How fast are texts reconstructed, one alone and many together?

Chunks of the shipped corpus are coded once and read back:

- *bare graph*: the decoder's step graph with its cache and nothing else (no patch is read, tokens
  are fed as known), in one process. This is the limit: the answer is bounded by computation;
- *engine*: the same records through the engine process and its socket, patch and all, in batches of
  1, 8, 32, 64 and everything at once (64 rows, refilled as records end);
- *disturbed*: as the verify reads, with noise on every logit.

Every text that is read back is compared with the original.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sheet
import texts
from numpy.typing import NDArray

from verso_core import manifest
from verso_core.jobs import Precision
from verso_core.manifest import Artifact
from verso_standalone.stack import find_artifact
from verso_worker.engine.decoder import Cache, Decoder
from verso_worker.engine.operations import EngineClient
from verso_worker.engine.sessions import Device, Load, Sessions, open_session
from verso_worker.engine.vocabulary import Vocabulary
from verso_worker.ipc.child import make_child
from verso_worker.records.artifact import cutter
from verso_worker.records.space import Space

BATCHES = (1, 8, 32, 64)


class Records:
    """Segments of the corpus that the decoder can code, and everything needed to read them back."""

    def __init__(self, artifact: Artifact, engine: EngineClient, *, count: int) -> None:
        codec, settings = artifact.manifest.codec, artifact.manifest.space
        cut = cutter(artifact)
        whole = (chunk for text in texts.corpus() for chunk in cut.cut(text))
        chunks = texts.chosen([part for chunk in whole for part in cut.segments(chunk)], count)
        space = Space(Precision.FLOAT16, settings.dim, settings.int8_scale)
        vectors = space.widen(space.round(engine.encode(chunks).vectors))
        payloads = engine.code(chunks, vectors)
        coded = [row for row, payload in enumerate(payloads) if payload is not None]
        vocabulary = Vocabulary(
            artifact.data["decoder_tokenizer.json"], size=codec.vocab, max_tokens=codec.max_tokens
        )
        self.texts = [chunks[row] for row in coded]
        self.payloads = [payload for payload in payloads if payload is not None]
        self.vectors = vectors[coded]
        tokens = vocabulary.tokenise(self.texts)
        self.tokens = [ids for ids in tokens if ids is not None]

    def steps(self, rows: Sequence[int]) -> int:
        """Count the tokens that reading some records takes, the end token included."""
        return sum(len(self.tokens[row]) + 1 for row in rows)

    def bytes(self, rows: Sequence[int]) -> int:
        """Count the bytes of some records' texts."""
        return sum(len(self.texts[row]) for row in rows)


def through_engine(
    engine: EngineClient, records: Records, rows: Sequence[int], *, batch: int, disturbed: bool
) -> None:
    """Read records in calls of `batch`, one call after another, and compare every byte."""
    for start in range(0, len(rows), batch):
        part = list(rows[start : start + batch])
        found = engine.read(
            [records.payloads[row] for row in part], records.vectors[part], disturbed=disturbed
        )
        if found != [records.texts[row] for row in part]:
            sys.exit("a record was not given back exactly")


def bare(decoder: Decoder, records: Records, rows: Sequence[int], *, batch: int) -> None:
    """Step through the records with known tokens: rows start and end together by length."""
    ordered = sorted(rows, key=lambda row: len(records.tokens[row]))
    bos = decoder.codec.bos
    cache = Cache(decoder, batch)
    for start in range(0, len(ordered), batch):
        part = ordered[start : start + batch][::-1]  # the longest first: rows end from the back
        cache.clear()
        cache.add(decoder.memory(records.vectors[part]))
        longest = len(records.tokens[part[0]]) + 1
        last = np.full(len(part), bos, np.int64)
        for step in range(longest):
            live = sum(1 for row in part if len(records.tokens[row]) >= step)
            while len(cache) > live:
                cache.remove(len(cache) - 1)
            cache.step(last[:live])
            last = _next(records, part[:live], step)


def _next(records: Records, part: Sequence[int], step: int) -> NDArray[np.int64]:
    tokens = [records.tokens[row] for row in part]
    return np.array([ids[step] if step < len(ids) else 0 for ids in tokens], np.int64)


def timed(run: Callable[[], None], *, repeats: int) -> list[float]:
    """Return the seconds of each repeat, after one that only warms up."""
    run()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--records", type=int, default=512, help="records read together")
    parser.add_argument("--single", type=int, default=48, help="records read one by one")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    paper = sheet.Sheet("restore")
    artifact = manifest.load(arguments.artifact or find_artifact())
    with tempfile.TemporaryDirectory(prefix="verso-") as run:
        socket = Path(run) / "engine.sock"
        command = [sys.executable, "-m", "verso_worker.engine", "--socket", str(socket)]
        command += ["--artifact", str(artifact.folder), "--threads", str(arguments.threads)]
        child = make_child("engine", command, socket_path=socket, ready_timeout_s=120.0)
        child.start()
        engine = EngineClient(socket)
        try:
            records = Records(artifact, engine, count=arguments.records)
            rows = _measure(artifact, engine, records, arguments)
        finally:
            engine.close()
            child.stop()
    sheet.table(
        "reading records back",
        ["variant", "batch", "records", "tokens/s", "kB/s", "ms a record", "of the bare graph"],
        [
            [
                row["way"],
                row["batch"],
                row["records"],
                row["tokens_per_s"],
                row["bytes_per_s"] / 1e3,
                row["ms_per_record"],
                f"{row['ratio']:.0%}" if row["ratio"] else "-",
            ]
            for row in rows
        ],
    )
    paper.finish({"artifact": artifact.id, "threads": arguments.threads, "rows": rows})


def _measure(
    artifact: Artifact, engine: EngineClient, records: Records, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    codec = artifact.manifest.codec
    memory, steps = (
        open_session(
            artifact.data[name],
            name,
            threads=arguments.threads,
            device=Device.CPU,
            optimisation=codec.profile.optimisation,
        )
        for name in ("memory.onnx", "decoder.onnx")
    )
    alone = Sessions(steps, None, load=Load())
    decoder = Decoder(memory, alone, codec, dim=artifact.manifest.space.dim)
    everything = list(range(len(records.payloads)))
    found: list[dict[str, Any]] = []
    for batch in (*BATCHES, len(everything)):
        rows = everything[: arguments.single] if batch == 1 else everything
        ways: dict[str, Callable[[], None]] = {}
        if batch in BATCHES:
            ways["bare graph"] = partial(bare, decoder, records, rows, batch=batch)
        for way, disturbed in (("engine", False), ("engine, disturbed", True)):
            ways[way] = partial(
                through_engine, engine, records, rows, batch=batch, disturbed=disturbed
            )
        for way, run in ways.items():
            seconds = statistics.median(timed(run, repeats=arguments.repeats))
            found.append(
                {
                    "way": way,
                    "batch": batch,
                    "records": len(rows),
                    "tokens_per_s": records.steps(rows) / seconds,
                    "bytes_per_s": records.bytes(rows) / seconds,
                    "ms_per_record": 1e3 * seconds / len(rows),
                    "ratio": None,
                }
            )
    limits = {row["batch"]: row["tokens_per_s"] for row in found if row["way"] == "bare graph"}
    for row in found:
        # All at once runs in 64 rows: the bare graph's 64 is its limit.
        limit = limits.get(row["batch"], limits[BATCHES[-1]])
        row["ratio"] = row["tokens_per_s"] / limit if row["way"] != "bare graph" else None
    return found


if __name__ == "__main__":
    main()
