"""How much should a head's score count where it reranks a search?

The documents of a folder in BEIR's layout go into a new collection of a running platform
(`verso up`), and each question is searched for once, by vectors and words, reranked by the head
alone. Every hit then has both scores, and what each share would have given is reckoned from them,
as `verso_worker.fusion` mixes them. Brackets are 95 % bootstrap intervals over the questions of the
gain in nDCG@10. Choose on questions that nothing else is reported on: `--split train`.

Limited by the processor: the head reads `--from` records a question.
"""

from __future__ import annotations

import argparse
import random
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import sheet
from numpy.typing import NDArray

from verso_client import Client, retrieval
from verso_client.answers import Hit
from verso_client.documents import Document
from verso_core.jobs import Precision, SearchMode

_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
_HITS = 300
_DRAWS = 2000


def asked(client: Client, given: retrieval.Set, *, head: str, scored: int) -> list[Sequence[Hit]]:
    """Take a set in, and search for each of its questions; the collection is deleted."""
    name = f"bench-{uuid.uuid4().hex[:12]}"
    client.create_collection(name, precision=Precision.INT8, search=SearchMode.HYBRID)
    try:
        documents = [Document(text, id=key) for key, text in given.documents.items()]
        client.ingest(documents, collection=name)
        return [
            client.search(
                question,
                collection=name,
                limit=_HITS,
                with_text=False,
                rerank=head,
                rerank_from=scored,
                rerank_share=1.0,
            ).hits
            for question in given.questions.values()
        ]
    finally:
        client.delete_collection(name)


def mixed(hits: Sequence[Hit], *, share: float) -> list[str]:
    """Give documents in the order that a share would have given, each once."""
    first = [hit for hit in hits if hit.rerank_score is not None]
    first.sort(key=lambda hit: -hit.score)
    if first:
        search = _spread([hit.score for hit in first])
        head = _spread([hit.rerank_score or 0.0 for hit in first])
        order = np.argsort(-((1 - share) * search + share * head), kind="stable")
        first = [first[place] for place in order]
    rest = [hit for hit in hits if hit.rerank_score is None]
    return list(dict.fromkeys(hit.document for hit in [*first, *rest]))


def _spread(values: Sequence[float]) -> NDArray[np.float64]:
    found = np.array(values, np.float64)
    spread: NDArray[np.float64] = (found - found.min()) / (np.ptp(found) or 1.0)
    return spread


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", type=Path, help="a set in BEIR's layout")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of the platform")
    parser.add_argument("--split", default="train")
    parser.add_argument("--head", default="alike")
    parser.add_argument("--questions", type=int, default=300, help="as many, drawn at random")
    parser.add_argument("--from", type=int, default=30, dest="scored", help="records it reads")
    options = parser.parse_args()
    page = sheet.Sheet("rerank")
    given = retrieval.read(options.folder, split=options.split)
    names = sorted(given.questions)
    names = random.Random(1).sample(names, min(options.questions, len(names)))
    given = retrieval.Set(
        given.name, given.documents, {name: given.questions[name] for name in names}, given.relevant
    )
    with Client(options.url) as client:
        found = asked(client, given, head=options.head, scored=options.scored)
    values = {
        share: np.array(
            [
                retrieval.ndcg(mixed(hits, share=share), given.relevant[name])
                for name, hits in zip(names, found, strict=True)
            ]
        )
        for share in _SHARES
    }
    draws = np.random.default_rng(0).integers(0, len(names), (_DRAWS, len(names)))
    rows = []
    for share, ndcg in values.items():
        low, high = np.quantile((ndcg - values[0.0])[draws].mean(axis=1), (0.025, 0.975))
        gain = 100 * float((ndcg - values[0.0]).mean())
        told = f"{gain:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
        rows.append((f"{share:g}", round(100 * float(ndcg.mean()), 1), told))
    title = f"{given.name}, {options.split}: {len(names)} questions, {options.head}"
    sheet.table(title, ("share", "nDCG@10", "against the search"), rows)
    page.finish({"head": options.head, "ndcg": {row[0]: row[1] for row in rows}})


if __name__ == "__main__":
    main()
