"""What keeps a head from reranking passages well: the head, or what of them it reads?

The first stage is that of a running platform (`verso up`): SciFact's abstracts go into a collection
and its training questions are searched for by vectors and words. Each head then reads the texts of
the first `--from` records, in this process and by the worker's own code (an engine process,
`verso_worker.rules.score`, `verso_worker.records.fusion`), in up to three ways:

- *whole*: the record, cut where the head's own length ends;
- *whole, longer*: the same by a copy of the head that reads `--tokens`;
- *best sentence*: what is served.

nDCG@10 by the head alone and mixed with the search; brackets are 95 % bootstrap intervals over the
questions. Then the same heads put the candidate sentences of SelQA's questions in order, by
themselves and mixed with the cosine of the vectors: what they may be good for. None of these
questions is among those that docs/research/quality.md reports on.

    verso up
    bench_rerank_causes.py --data DIR --heads alike pairs

The limit is the processor; one thread. With `--collection` several runs share one that is kept.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sheet
from numpy.typing import NDArray

from studies.benches.rerank import reranking
from studies.benches.rerank.readings import Way, readers
from studies.benches.rerank.reranking import HITS, Read
from studies.quality import pairsets, selection
from studies.quality.pairsets import Ranking
from verso_client import Client
from verso_client.cli import evaluation as retrieval
from verso_core.jobs import RERANK_SHARE
from verso_standalone.stack import find_artifact
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.records import fusion
from verso_worker.rules.score import Score

_SHARES = (1.0, 0.3, RERANK_SHARE, 0.5, 0.6)
_JUDGED = (1.0, RERANK_SHARE)


def passages(
    client: Client,
    given: retrieval.Set,
    pairing: Score,
    tried: Sequence[Way],
    *,
    collection: str,
    scored: int,
) -> dict[str, list[Read]]:
    """Search for each question and let every way read the first records."""
    found: dict[str, list[Read]] = {way.name: [] for way in tried}
    for question in given.questions.values():
        hits = client.search(question, collection=collection, limit=HITS, with_text=False).hits
        ids = [hit.id for hit in hits[:scored]]
        texts = [one.text or "" for one in client.reconstruct(ids, collection=collection)]
        for way in tried:
            found[way.name].append(Read(hits, way.scores(pairing, question, texts)))
    return found


def sentences(
    rows: Sequence[Ranking], pairing: Score, model_store: ArtifactStore, names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Order candidates; mean reciprocal ranks in percent by head and share, 0 the cosine.

    The candidates are sentences, so there is one way to read them.
    """
    cosines = []
    for row in rows:
        texts = [one.encode() for one in (row.question, *row.candidates)]
        vectors = model_store.current().recorder.engine.encode(texts).vectors
        cosines.append((vectors[1:] @ vectors[0]).tolist())
    found = {}
    for name in names:
        way = Way(name, name, sentences=True)
        read = [way.scores(pairing, row.question, row.candidates) for row in rows]
        found[name] = {
            f"{share:g}": selection.ranked(
                [
                    _places(fusion.reranked(one, scores, share=share))
                    for one, scores in zip(cosines, read, strict=True)
                ],
                rows,
            )[0]
            for share in (0.0, *_SHARES)
        }
    return found


def _places(order: Sequence[int]) -> NDArray[np.float32]:
    """Return scores that have an order of their own."""
    scores = np.zeros(len(order), np.float32)
    scores[list(order)] = -np.arange(len(order))
    return scores


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, required=True, help="folder of the public data sets")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of the platform")
    parser.add_argument("--collection", help="holds the abstracts, or shall, and is kept")
    parser.add_argument("--models", type=Path, help="folder of the artifact and the heads")
    parser.add_argument("--heads", nargs="+", default=["alike", "pairs"])
    parser.add_argument("--questions", type=int, default=100, help="as many, drawn at random")
    parser.add_argument("--from", type=int, default=20, dest="scored", help="records they read")
    parser.add_argument("--tokens", type=int, default=256, help="what a longer copy reads")
    parser.add_argument("--sentences", type=int, default=120, help="questions of SelQA")
    options = parser.parse_args()
    page = sheet.Sheet("rerank_causes")
    rows = pairsets.selqa(options.data, "dev")[selection.QUESTIONS :]
    rows = random.Random(0).sample(rows, min(options.sentences, len(rows)))
    models = options.models or find_artifact().parent
    given = reranking.drawn(options.data / "ir_scifact", split="train", count=options.questions)
    with (
        readers(models, options.heads, tokens=options.tokens) as (pairing, model_store, tried),
        Client(options.url) as client,
        reranking.taken_in(client, given, collection=options.collection) as collection,
    ):
        ranked = sentences(rows, pairing, model_store, options.heads)
        found = passages(
            client, given, pairing, tried, collection=collection, scored=options.scored
        )
    page.finish(
        {
            "heads": options.heads,
            "passages": _passage_table(given, found, scored=options.scored),
            "sentences": _sentence_table(ranked, count=len(rows)),
        }
    )


def _passage_table(
    given: retrieval.Set, found: dict[str, list[Read]], *, scored: int
) -> dict[str, Any]:
    rows, told = [], {}
    plain = reranking.reached(given, next(iter(found.values())), share=0.0)
    for name, read in found.items():
        by_share = {share: reranking.reached(given, read, share=share) for share in _SHARES}
        gains = {share: retrieval.gain(by_share[share], plain) for share in _JUDGED}
        rows.append(
            (
                name,
                *(reranking.percent(ndcg) for ndcg in by_share.values()),
                *(reranking.told(gain) for gain in gains.values()),
            )
        )
        told[name] = {
            "ndcg": {f"{share:g}": reranking.percent(one) for share, one in by_share.items()},
            "gain": {f"{share:g}": gain.model_dump() for share, gain in gains.items()},
        }
    sheet.table(
        f"{given.name}: {len(given.questions)} training questions, the first {scored} records; "
        f"the search alone {reranking.percent(plain)}",
        (
            "head, what it reads",
            *("alone" if share == 1 else f"{share:g}" for share in _SHARES),
            *(f"gained, {share:g}" for share in _JUDGED),
        ),
        rows,
    )
    return {"search": reranking.percent(plain), **told}


def _sentence_table(ranked: dict[str, dict[str, float]], *, count: int) -> dict[str, Any]:
    sheet.table(
        f"SelQA: {count} questions, mean reciprocal rank by the head's share; 0 is the cosine",
        ("head", "0", *("alone" if share == 1 else f"{share:g}" for share in _SHARES)),
        [(name, *by_share.values()) for name, by_share in ranked.items()],
    )
    return ranked


if __name__ == "__main__":
    main()
