"""What could put a search's hits in a better order, and needs no training?

The first stage is that of a running platform (`verso up`): a set's documents go into a collection
and its questions are searched for by vectors and words. The texts of the first `--from` records are
then compared with the question in this process, by the served encoder's weights, in three ways
(`interaction`): *late interaction*, token by token; *feedback*, by the mean of the first `--first`
hits; and *both*, each spread over 0 to 1 and added.

nDCG@10 by each alone and mixed with the search, as `verso_worker.records.fusion` mixes; brackets
are 95 %
bootstrap intervals over the questions of the gain at the best of the shares, which flatters it.
Choose on questions that nothing else is reported on: `--split train`.

    verso up
    bench_rerank_untrained.py DIR/ir_scifact --split train

The limit is the processor; one thread. With `--collection` several runs share one that is kept.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import sheet
import torch

from studies.benches.rerank import interaction, reranking
from studies.benches.rerank.interaction import Array
from studies.benches.rerank.reranking import HITS, Read
from verso_client import Client
from verso_client.cli import evaluation as retrieval
from verso_core.jobs.search import Hit
from verso_standalone.stack import find_artifact
from verso_training.heads import backbone
from verso_training.heads.backbone import Backbone

_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
_MOST_TOKENS = 256
_WAYS = ("late interaction", "feedback", "both")

Found = tuple[Sequence[Hit], Sequence[str]]
"""A search's hits, and the texts of the first of them."""


def searched(client: Client, given: retrieval.Set, *, collection: str, scored: int) -> list[Found]:
    """Search for each question, and read the first records' texts."""
    found: list[Found] = []
    for question in given.questions.values():
        hits = client.search(question, collection=collection, limit=HITS, with_text=False).hits
        ids = [hit.id for hit in hits[:scored]]
        texts = [one.text or "" for one in client.reconstruct(ids, collection=collection)]
        found.append((hits, texts))
    return found


def compared(
    base: Backbone, given: retrieval.Set, found: Sequence[Found], *, first: int
) -> dict[str, list[Read]]:
    """Score the texts of every question in every way."""
    questions = interaction.states(base, list(given.questions.values()), max_tokens=_MOST_TOKENS)
    read: dict[str, list[Read]] = {way: [] for way in _WAYS}
    for question, (hits, texts) in zip(questions, found, strict=True):
        states = interaction.states(base, texts, max_tokens=_MOST_TOKENS)
        late = np.array([interaction.late(question, one) for one in states], np.float32)
        scores = np.array([hit.score for hit in hits[: len(texts)]], np.float32)
        vectors = np.array([interaction.vector(one) for one in states])
        fed_back = interaction.fed_back(scores, vectors, first=first)
        both = _spread(late) + _spread(fed_back)
        for way, one in zip(_WAYS, (late, fed_back, both), strict=True):
            read[way].append(Read(hits, one))
    return read


def _spread(values: Array) -> Array:
    spread: Array = (values - values.min()) / (np.ptp(values) or 1.0)
    return spread


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", type=Path, help="a set in BEIR's layout")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of the platform")
    parser.add_argument("--collection", help="holds the documents, or shall, and is kept")
    parser.add_argument("--split", default="train")
    parser.add_argument("--artifact", type=Path, help="whose encoder compares")
    parser.add_argument("--questions", type=int, default=300, help="as many, drawn at random")
    parser.add_argument("--from", type=int, default=30, dest="scored", help="records compared")
    parser.add_argument("--first", type=int, default=3, help="hits that feedback asks with")
    options = parser.parse_args()
    page = sheet.Sheet("rerank_untrained")
    torch.set_num_threads(1)
    given = reranking.drawn(options.folder, split=options.split, count=options.questions)
    with (
        Client(options.url) as client,
        reranking.taken_in(client, given, collection=options.collection) as collection,
    ):
        found = searched(client, given, collection=collection, scored=options.scored)
    base = backbone.load(options.artifact or find_artifact())
    read = compared(base, given, found, first=options.first)
    plain = reranking.reached(given, read[_WAYS[0]], share=0.0)
    rows, told = [], {}
    for way, one in read.items():
        values = {share: reranking.reached(given, one, share=share) for share in _SHARES}
        best = max(values, key=lambda share: float(np.mean(values[share])))
        gain = retrieval.gain(values[best], plain)
        rows.append((way, *map(reranking.percent, values.values()), reranking.told(gain)))
        told[way] = {f"{share:g}": reranking.percent(value) for share, value in values.items()}
    sheet.table(
        f"{given.name}, {options.split}: {len(given.questions)} questions, the first "
        f"{options.scored} records; the search alone {reranking.percent(plain)}",
        ("compared by", *(f"{share:g}" for share in _SHARES), "gained at the best share"),
        rows,
    )
    page.finish({"search": reranking.percent(plain), **told})


if __name__ == "__main__":
    main()
