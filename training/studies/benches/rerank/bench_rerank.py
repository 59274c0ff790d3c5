"""How much should a head's score count where it reranks a search?

The documents of a folder in BEIR's layout go into a new collection of a running platform
(`verso up`), and each question is searched for once, by vectors and words, reranked by the head
alone. Every hit then has both scores, and what each share would have yielded is computed from them,
as `verso_worker.records.fusion` mixes them. Brackets are 95 % bootstrap intervals over the
questions of the
gain in nDCG@10. Choose on questions that nothing else is reported on: `--split train`. With
`--collection` several runs share one that is kept.

The limit is the processor: the head reads `--from` records a question.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import sheet

from studies.benches.rerank import reranking
from studies.benches.rerank.reranking import HITS, Read
from verso_client import Client
from verso_client.cli import evaluation as retrieval

_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)


def asked(client: Client, question: str, *, collection: str, head: str, scored: int) -> Read:
    """Search, reranked by the head alone, and put the hits back in the order of the search."""
    hits = client.search(
        question,
        collection=collection,
        limit=HITS,
        with_text=False,
        rerank=head,
        rerank_from=scored,
        rerank_share=1.0,
    ).hits
    first = [hit for hit in hits if hit.rerank_score is not None]
    first.sort(key=lambda hit: -hit.score)
    rest = [hit for hit in hits if hit.rerank_score is None]
    return Read([*first, *rest], np.array([hit.rerank_score for hit in first], np.float32))


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", type=Path, help="a set in BEIR's layout")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of the platform")
    parser.add_argument("--collection", help="holds the set, or shall, and is kept")
    parser.add_argument("--split", default="train")
    parser.add_argument("--head", default="alike")
    parser.add_argument("--questions", type=int, default=300, help="as many, drawn at random")
    parser.add_argument("--from", type=int, default=30, dest="scored", help="records it reads")
    options = parser.parse_args()
    page = sheet.Sheet("rerank")
    given = reranking.drawn(options.folder, split=options.split, count=options.questions)
    with (
        Client(options.url) as client,
        reranking.taken_in(client, given, collection=options.collection) as collection,
    ):
        found = [
            asked(client, one, collection=collection, head=options.head, scored=options.scored)
            for one in given.questions.values()
        ]
    reached = {share: reranking.reached(given, found, share=share) for share in _SHARES}
    gains = {share: retrieval.gain(ndcg, reached[0.0]) for share, ndcg in reached.items()}
    sheet.table(
        f"{given.name}, {options.split}: {len(given.questions)} questions, {options.head}",
        ("share", "nDCG@10", "against the search"),
        [
            (f"{share:g}", reranking.percent(ndcg), reranking.told(gains[share]))
            for share, ndcg in reached.items()
        ],
    )
    page.finish(
        {
            "head": options.head,
            "ndcg": {f"{share:g}": reranking.percent(ndcg) for share, ndcg in reached.items()},
            "gain": {f"{share:g}": gain.model_dump() for share, gain in gains.items()},
        }
    )


if __name__ == "__main__":
    main()
