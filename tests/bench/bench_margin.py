"""Does a patch that one configuration wrote read on every other, and what does that safety cost?

Segments of the shipped corpus, and of the public sets with --data, are coded in one configuration:
whole records at once, 32 side by side, one thread, the artifact's own optimisation. Then the same
payloads meet the logits of all others: 1, 7 or 32 records side by side, whole records or token by
token with a cache, one or two threads, every optimisation level of ONNX Runtime. Told are

- the largest difference of any logit and of any confidence from those the payload was coded with;
- every record in which a payload chose another token than the true one, and how many there were
  when the same records were coded without any margin;
- what the margins cost: positions that are spelled out only because of them, and the bits.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import sheet
import texts

from verso_codecs import ranks
from verso_codecs.rank_stream import SHIFT_COUNT
from verso_codecs.ranks import ESCAPE, RankTables, Streams
from verso_core import manifest
from verso_core.jobs import Precision
from verso_core.manifest import Artifact
from verso_standalone.stack import find_artifact
from verso_worker.artifact import cutter, rank_tables
from verso_worker.engine.decoder import Cache, Decoder, Floats, Memory, Scores
from verso_worker.engine.loading import load_service
from verso_worker.engine.vocabulary import Vocabulary
from verso_worker.space import Space

LEVELS = {
    "disabled": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
WAYS = ("whole", "stepwise")
BATCHES = (1, 7, 32)
THREADS = (1, 2)


@dataclass(frozen=True, slots=True)
class Setting:
    """A configuration. ``way`` is whole records at once, or token by token."""

    level: str
    threads: int
    way: str
    batch: int


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A record: its targets, the end token last, and its widened vector."""

    targets: list[int]
    vector: Floats


def main() -> None:
    """Measure, print, hand in."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--data", type=Path, help="folder of public sets; default: none")
    parser.add_argument("--records", type=int, default=128, help="records of the corpus")
    arguments = parser.parse_args()
    paper = sheet.Sheet("margin")
    artifact = manifest.load(arguments.artifact or find_artifact())
    samples = _samples(artifact, arguments.data, count=arguments.records)
    tables = rank_tables(artifact)
    home = Setting(artifact.manifest.codec.profile.optimisation, 1, "whole", 32)
    reference = scored(artifact, samples, home)
    coded = payloads(artifact, samples, reference, tables=tables, margin=1.0)
    bare = payloads(artifact, samples, reference, tables=tables, margin=0.0)
    rows = []
    for level, threads, way, batch in itertools.product(LEVELS, THREADS, WAYS, BATCHES):
        setting = Setting(level, threads, way, batch)
        found = scored(artifact, samples, setting)
        rows.append(
            {
                "level": level,
                "threads": threads,
                "way": way,
                "batch": batch,
                "logit": _furthest([one.logits for one in found], [r.logits for r in reference]),
                "confidence": _furthest(
                    [one.confidence for one in found], [r.confidence for r in reference]
                ),
                "near_an_edge": _near_an_edge(found, reference, tables),
                "disagreed": disagreements(samples, found, coded, tables=tables),
                "without_margin": disagreements(samples, found, bare, tables=tables),
            }
        )
    cost = cost_of(artifact, samples, reference, tables=tables)
    _print(rows, cost)
    paper.finish(
        {"artifact": artifact.id, "records": len(samples), "coded_in": asdict(home)}
        | {"epsilon": artifact.manifest.codec.epsilon, "cost": cost, "rows": rows}
    )


def scored(artifact: Artifact, samples: Sequence[Sample], setting: Setting) -> list[Scores]:
    """Give each record's scores in a configuration. Shape: (tokens, V) and (tokens,)."""
    codec = artifact.manifest.codec
    memory, step = (
        _session(artifact.data[name], setting) for name in ("memory.onnx", "decoder.onnx")
    )
    decoder = Decoder(memory, step, codec, dim=artifact.manifest.space.dim)
    found: list[Scores | None] = [None] * len(samples)
    # Neighbours differ in length where records are scored whole, as they do in a worker; token by
    # token the longest come first, so that rows end from the back.
    order = list(range(len(samples)))
    if setting.way == "stepwise":
        order.sort(key=lambda row: -len(samples[row].targets))
    cache = Cache(decoder, setting.batch)
    for start in range(0, len(order), setting.batch):
        rows = order[start : start + setting.batch]
        part = [samples[row] for row in rows]
        known = decoder.memory(np.stack([sample.vector for sample in part]))
        scores = (
            _whole(decoder, part, known)
            if setting.way == "whole"
            else _stepwise(cache, part, known, bos=codec.bos)
        )
        for row, one in zip(rows, scores, strict=True):
            found[row] = one
    return [one for one in found if one is not None]


def payloads(
    artifact: Artifact,
    samples: Sequence[Sample],
    scores: Sequence[Scores],
    *,
    tables: RankTables,
    margin: float,
) -> list[bytes]:
    """Code every record with a share of the codec's margins."""
    codec = artifact.manifest.codec
    return [
        ranks.encode(
            score.logits,
            score.confidence,
            targets=np.array(sample.targets),
            tables=tables,
            epsilon=margin * codec.epsilon,
            confidence_epsilon=margin * codec.confidence_epsilon,
        )
        for sample, score in zip(samples, scores, strict=True)
    ]


def disagreements(
    samples: Sequence[Sample],
    scores: Sequence[Scores],
    coded: Sequence[bytes],
    *,
    tables: RankTables,
) -> int:
    """Count the records whose payload chooses a token that is not the true one."""
    wrong = 0
    for sample, score, payload in zip(samples, scores, coded, strict=True):
        stream, row = Streams([payload], tables), np.zeros(1, np.int32)
        for place, target in enumerate(sample.targets):
            here = slice(place, place + 1)
            if stream.step(row, score.logits[here], score.confidence[here])[0] != target:
                wrong += 1
                break
    return wrong


def cost_of(
    artifact: Artifact, samples: Sequence[Sample], scores: Sequence[Scores], *, tables: RankTables
) -> dict[str, float]:
    """Give what the margins cost, over all tokens."""
    codec = artifact.manifest.codec
    tokens = escapes = plain_escapes = 0
    safe = bare = logits_only = 0.0
    for sample, score in zip(samples, scores, strict=True):
        targets = np.array(sample.targets)
        guarded, plain = (
            ranks.events(score.logits, score.confidence, targets=targets, epsilon=epsilon)
            for epsilon in (codec.epsilon, 0.0)
        )
        tokens += targets.size
        escapes += int((guarded.ranks == ESCAPE).sum())
        plain_escapes += int((plain.ranks == ESCAPE).sum())
        margin = codec.confidence_epsilon
        safe += ranks.bits(guarded, tables, confidence_epsilon=margin)
        logits_only += ranks.bits(guarded, tables, confidence_epsilon=0.0)
        bare += ranks.bits(plain, tables, confidence_epsilon=0.0)
    return {
        "tokens": tokens,
        "bits": safe,
        "escapes_a_thousand_tokens": 1e3 * plain_escapes / tokens,
        "escapes_of_the_margin_a_thousand_tokens": 1e3 * (escapes - plain_escapes) / tokens,
        "bits_of_epsilon": logits_only - bare,
        "bits_of_confidence_epsilon": safe - logits_only,
        "share_of_bits": (safe - bare) / safe,
    }


def _samples(artifact: Artifact, data: Path | None, *, count: int) -> list[Sample]:
    """Choose records that the decoder can code, some of each set."""
    codec, settings = artifact.manifest.codec, artifact.manifest.space
    cut = cutter(artifact)
    sets = {"corpus": texts.corpus()} | (texts.public(data) if data is not None else {})
    parts: list[bytes] = []
    for number, given in enumerate(sets.values()):
        few = texts.chosen(given, count if number == 0 else max(1, count // 8))
        found = [part for text in few for chunk in cut.cut(text) for part in cut.segments(chunk)]
        parts += texts.chosen(found, len(few))
    vocabulary = Vocabulary(
        artifact.data["decoder_tokenizer.json"], size=codec.vocab, max_tokens=codec.max_tokens
    )
    tokens = vocabulary.tokenise(parts)
    service = load_service(artifact, threads=1)
    space = Space(Precision.FLOAT16, settings.dim, settings.int8_scale)
    vectors = space.widen(space.round(service.encode(parts).vectors))
    service.close()
    return [
        Sample([*ids, codec.eos], vector)
        for ids, vector in zip(tokens, vectors, strict=True)
        if ids is not None
    ]


def _session(graph: bytes, setting: Setting) -> ort.InferenceSession:
    """Open a graph as the engine does, at any level."""
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[setting.level]
    options.intra_op_num_threads = setting.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _whole(decoder: Decoder, part: Sequence[Sample], memory: Memory) -> Iterator[Scores]:
    scores = decoder.score([sample.targets[:-1] for sample in part], memory)
    for row, sample in enumerate(part):
        size = len(sample.targets)
        yield Scores(scores.logits[row, :size].copy(), scores.confidence[row, :size].copy())


def _stepwise(
    cache: Cache, part: Sequence[Sample], memory: Memory, *, bos: int
) -> Iterator[Scores]:
    cache.clear()
    cache.add(memory)
    found: list[list[Scores]] = [[] for _ in part]
    last = np.full(len(part), bos, np.int64)
    for place in range(len(part[0].targets)):
        live = sum(len(sample.targets) > place for sample in part)
        while len(cache) > live:
            cache.remove(len(cache) - 1)
        scores = cache.step(last[:live])
        for row in range(live):
            found[row].append(Scores(scores.logits[row].copy(), scores.confidence[row].copy()))
            last[row] = part[row].targets[place]
    for steps in found:
        yield Scores(
            np.stack([step.logits for step in steps]),
            np.stack([step.confidence for step in steps]),
        )


def _furthest(found: Sequence[Floats], reference: Sequence[Floats]) -> float:
    return max(
        float(np.abs(one - other).max()) for one, other in zip(found, reference, strict=True)
    )


def _near_an_edge(
    found: Sequence[Scores], reference: Sequence[Scores], tables: RankTables
) -> float:
    """Give the largest difference of a confidence below the highest edge and all its shifts.

    Above, where the decoder is all but certain, log-odds lose their digits; nothing looks there.
    """
    one, other = (np.concatenate([s.confidence for s in side]) for side in (found, reference))
    top = float(tables.edges[-1]) + SHIFT_COUNT * tables.shift_step + tables.shift_step
    return float(np.abs(one - other)[other < top].max(initial=0.0))


def _print(rows: Sequence[dict[str, Any]], cost: dict[str, float]) -> None:
    sheet.table(
        "against the configuration that coded",
        [
            "level",
            "threads",
            "way",
            "batch",
            "logit",
            "confidence",
            "near an edge",
            "disagreed",
            "without margin",
        ],
        [
            [
                *(row[name] for name in ("level", "threads", "way", "batch")),
                f"{row['logit']:.1e}",
                f"{row['confidence']:.1e}",
                f"{row['near_an_edge']:.1e}",
                row["disagreed"],
                row["without_margin"],
            ]
            for row in rows
        ],
    )
    sheet.table("cost of the margins", ["what", "value"], [list(item) for item in cost.items()])


if __name__ == "__main__":
    main()
