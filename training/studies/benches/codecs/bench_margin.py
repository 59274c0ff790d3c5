"""Does a patch that one configuration wrote read on every other, and what does that safety cost?

Segments of the shipped corpus, and of the public sets with --data, are coded in one configuration:
whole records at once, 32 side by side, one thread, the artifact's own optimisation. Then the same
payloads are read with the logits of all others: 1, 7 or 32 records side by side, whole records or
token by token with a cache, one or two threads, every optimisation level of ONNX Runtime. Reported
are

- the largest difference of any logit and of any confidence from those the payload was coded with;
- every record in which a payload chose another token than the true one, and how many there were
  when the same records were coded without any margin;
- what the margins cost: positions that are spelled out only because of them, and the bits; and
  what they would cost were they smaller.

With ``--other`` the records are scored on other processors as well, which QEMU's user mode emulates
bit for bit: the payloads written here are read with their logits.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import sheet
import texts

from studies.benches.codecs.scoring import (
    LEVELS,
    Sample,
    Setting,
    load_scores,
    save_samples,
    scored,
)
from verso_codecs import ranks
from verso_codecs.rank_stream.layout import SHIFT_COUNT
from verso_codecs.ranks import ESCAPE, RankTables, Streams
from verso_core import manifest
from verso_core.jobs import Precision
from verso_core.manifest import Artifact
from verso_standalone.stack import find_artifact
from verso_worker.engine.decoder import Floats, Scores
from verso_worker.engine.loading import load_service
from verso_worker.engine.vocabulary import Vocabulary
from verso_worker.records.artifact import cutter, rank_tables
from verso_worker.records.space import Space

WAYS = ("whole", "stepwise")
BATCHES = (1, 7, 32)
THREADS = (1, 2)
SMALLER = (1 / 4, 1 / 16)
"""Of the codec's margins: shares of which the cost is told too."""


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--data", type=Path, help="folder of public sets; default: none")
    parser.add_argument("--records", type=int, default=128, help="records of the corpus")
    parser.add_argument(
        "--other",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="a Python on another processor: 'AVX2=qemu-x86_64 -cpu max .venv/bin/python'",
    )
    parser.add_argument("--only-others", action="store_true", help="nothing on this processor")
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
    for processor, setting, found in configurations(artifact, samples, home, arguments):
        rows.append(
            {
                "processor": processor,
                **asdict(setting),
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


def configurations(
    artifact: Artifact, samples: Sequence[Sample], home: Setting, arguments: argparse.Namespace
) -> Iterator[tuple[str, Setting, list[Scores]]]:
    """Yield every configuration with its scores: this processor's, then other processors'."""
    if not arguments.only_others:
        for level, threads, way, batch in itertools.product(LEVELS, THREADS, WAYS, BATCHES):
            setting = Setting(level, threads, way, batch)
            yield "this", setting, scored(artifact, samples, setting)
    others = [home, Setting(home.level, 1, "stepwise", 7)]
    for name, _, command in (pair.partition("=") for pair in arguments.other):
        with tempfile.TemporaryDirectory(prefix="verso-bench-") as folder:
            save_samples(samples, Path(folder) / "samples.npz")
            plans = json.dumps([asdict(setting) for setting in others])
            (Path(folder) / "settings.json").write_text(plans)
            program = Path(__file__).with_name("scoring.py")
            place = arguments.artifact or find_artifact()
            subprocess.run([*shlex.split(command), program, place, folder], check=True)
            for number, setting in enumerate(others):
                yield name, setting, load_scores(samples, Path(folder) / f"scores-{number}.npz")


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
    """Return what the margins cost, over all tokens."""
    codec = artifact.manifest.codec
    tokens = escapes = plain_escapes = 0
    safe = bare = logits_only = 0.0
    smaller = dict.fromkeys(SMALLER, 0.0)
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
        for share in SMALLER:
            events = ranks.events(
                score.logits, score.confidence, targets=targets, epsilon=share * codec.epsilon
            )
            smaller[share] += ranks.bits(events, tables, confidence_epsilon=share * margin)
    return {
        "tokens": tokens,
        "bits": safe,
        "escapes_a_thousand_tokens": 1e3 * plain_escapes / tokens,
        "escapes_of_the_margin_a_thousand_tokens": 1e3 * (escapes - plain_escapes) / tokens,
        "bits_of_epsilon": logits_only - bare,
        "bits_of_confidence_epsilon": safe - logits_only,
        "share_of_bits": (safe - bare) / safe,
        **{
            f"share_of_bits_with_{share:.4g}_of_them": (bits - bare) / bits
            for share, bits in smaller.items()
        },
    }


def _samples(artifact: Artifact, data: Path | None, *, count: int) -> list[Sample]:
    """Choose records that the decoder can code, some of each set."""
    cut = cutter(artifact)
    sets = {"corpus": texts.corpus()} | (texts.public(data) if data is not None else {})
    parts: list[bytes] = []
    for number, given in enumerate(sets.values()):
        few = texts.chosen(given, count if number == 0 else max(1, count // 8))
        found = [part for text in few for chunk in cut.cut(text) for part in cut.segments(chunk)]
        parts += texts.chosen(found, len(few))
    return samples_of(artifact, parts)


def samples_of(artifact: Artifact, parts: Sequence[bytes]) -> list[Sample]:
    """Return those texts that the decoder can code, with their vectors as a store keeps them."""
    codec, settings = artifact.manifest.codec, artifact.manifest.space
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


def _furthest(found: Sequence[Floats], reference: Sequence[Floats]) -> float:
    return max(
        float(np.abs(one - other).max()) for one, other in zip(found, reference, strict=True)
    )


def _near_an_edge(
    found: Sequence[Scores], reference: Sequence[Scores], tables: RankTables
) -> float:
    """Return the largest difference of a confidence below the highest edge and all its shifts.

    Above, where the decoder is all but certain, log-odds lose their digits; nothing looks there.
    """
    one, other = (np.concatenate([s.confidence for s in side]) for side in (found, reference))
    top = float(tables.edges[-1]) + SHIFT_COUNT * tables.shift_step + tables.shift_step
    return float(np.abs(one - other)[other < top].max(initial=0.0))


def _print(rows: Sequence[dict[str, Any]], cost: dict[str, float]) -> None:
    sheet.table(
        "differences from the configuration that coded",
        [
            "processor",
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
                *(row[name] for name in ("processor", "level", "threads", "way", "batch")),
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
