"""What the encoders of artifacts are worth: similarity, search, and other languages.

Vectors come from the artifacts' own graphs, as a worker computes them. Each part is kept in a
folder when it is done, from where a later run continues:

- *similarity*: STS-B, Spearman's correlation of cosine and grade, dev and test;
- *search*: CACM, nDCG@10 of dense search over titles and abstracts;
- *sentences*: 16 sentences written for this study (CC0), in English, German, French and Spanish:
  how often the nearest English one of a translation is its original;
- *documentation*: the same of one-line summaries of manual pages (``manual``);
- *patches*: bytes a record of CACM's abstracts, which no decoder was trained on, by the decoder
  with their vectors and with none, by the n-gram codec, and by the smallest of these.
"""

from __future__ import annotations

import csv
import json
import lzma
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from studies.multilingual import manual
from verso_core import manifest
from verso_core.record import Codec
from verso_training.artifact.graphs import EncoderGraph, Floats
from verso_training.heads.scoring import spearman
from verso_worker.engine.loading import load_service
from verso_worker.records import artifact as records
from verso_worker.records.neural import NeuralCodec

SENTENCES = Path(__file__).parent / "sentences.json"
LANGUAGES = ("de", "fr", "es")
_CUT = 10
_RECORDS = 100
Figures = dict[str, float]


def measure(artifact: Path, data: Path, *, pages: Path, work: Path) -> Figures:
    """Return the figures of one artifact: percent, and bytes.

    Args:
        artifact: The encoder's.
        data: Folder of the public data sets.
        pages: Folder of manual pages, with a folder for each language below it.
        work: Keeps what is measured, by artifact and part.
    """
    parts: dict[str, Callable[[EncoderGraph], Figures]] = {
        "similarity": lambda graph: _similarities(graph, data),
        "search": lambda graph: {"CACM, nDCG@10": _search(graph, data / "ir_cacm")},
        "sentences": _sentences,
        "documentation": lambda graph: _documentation(graph, pages),
        "patches": lambda _: _patches(artifact, data / "ir_cacm"),
    }
    graph = None
    found: Figures = {}
    for name, part in parts.items():
        kept = work / f"{manifest.load(artifact).id}-{name}.json"
        if not kept.exists():
            graph = graph or EncoderGraph(artifact)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(part(graph)) + "\n", encoding="utf-8")
        found |= json.loads(kept.read_text(encoding="utf-8"))
    return found


def _similarities(graph: EncoderGraph, data: Path) -> Figures:
    return {f"STS-B {part}, Spearman": _similarity(graph, data, part) for part in ("dev", "test")}


def _similarity(graph: EncoderGraph, data: Path, part: str) -> float:
    path = data / "sim_stsb" / f"stsb-en-{part}.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))
    first, second = (graph.encode([row[at] for row in rows]) for at in (0, 1))
    cosines = np.sum(first * second, 1, dtype=np.float64)
    return 100 * spearman(np.asarray(cosines), np.array([float(row[2]) for row in rows]))


def _sentences(graph: EncoderGraph) -> Figures:
    rows = json.loads(SENTENCES.read_text(encoding="utf-8"))
    english = graph.encode([row["en"] for row in rows])
    own = range(len(rows))
    return {
        f"{len(rows)} sentences, {language} finds en": _found(
            graph.encode([row[language] for row in rows]), english, own
        )
        for language in LANGUAGES
    }


def _documentation(graph: EncoderGraph, pages: Path) -> Figures:
    translated = {language: manual.summaries(pages / language) for language in LANGUAGES}
    wanted = {page for found in translated.values() for page in found}
    english = manual.summaries(pages, wanted)
    candidates = list(dict.fromkeys(english.values()))
    vectors = graph.encode(candidates)
    figures = {}
    for language, found in translated.items():
        # Several commands may share a page; a summary that nobody translated finds itself.
        asked = {
            text: english[page]
            for page, text in found.items()
            if page in english and text != english[page]
        }
        if asked:
            right = [candidates.index(text) for text in asked.values()]
            what = f"{len(asked)} manual pages of {len(candidates)}, {language} finds en"
            figures[what] = _found(graph.encode(list(asked)), vectors, right)
    return figures


def _found(asked: Floats, candidates: Floats, right: Sequence[int]) -> float:
    """Return how often the nearest candidate is the right one, in percent."""
    return 100 * float(np.mean((asked @ candidates.T).argmax(1) == np.asarray(right)))


def _search(graph: EncoderGraph, folder: Path) -> float:
    corpus = _corpus(folder)
    queries = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    texts = [f"{row.get('title', '')}\n{row.get('text', '')}".strip() for row in corpus]
    scores = graph.encode([row["text"] for row in queries]) @ graph.encode(texts).T
    return 100 * _ndcg(scores, queries, corpus, dict(_judged(folder)))


def _patches(folder: Path, data: Path) -> Figures:
    artifact = manifest.load(folder)
    cutter = records.cutter(artifact)
    abstracts = [row["text"] for row in _corpus(data) if row.get("text")]
    texts = [cutter.cut(text.encode())[0] for text in abstracts[:: len(abstracts) // _RECORDS]]
    ngram = records.byte_codecs(artifact)[Codec.NGRAM]
    with closing(load_service(artifact, threads=1)) as service:
        neural = NeuralCodec(service, cutter)
        # Not rounded as stored ones are: a collection names its precision, an artifact does not.
        vectors = service.encode(texts).vectors
        offers = {
            "decoder": neural.code(texts, vectors),
            "decoder, no vector": neural.code(texts, np.zeros_like(vectors)),
        }
    sizes = {
        name: [
            len(text) if offer is None else min(len(offer[1]), len(text))
            for offer, text in zip(found, texts, strict=True)
        ]
        for name, found in offers.items()
    }
    sizes["n-gram"] = [len(ngram.encode(text)) for text in texts]
    sizes["smallest"] = [min(row) for row in zip(*sizes.values(), strict=True)]
    sizes["raw"] = list(map(len, texts))
    what = f"bytes a record, {len(texts)} abstracts"
    return {f"{what}, {name}": float(np.mean(found)) for name, found in sizes.items()}


def _corpus(folder: Path) -> list[dict[str, str]]:
    with lzma.open(folder / "corpus.jsonl.xz", "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def _judged(folder: Path) -> Iterator[tuple[str, dict[str, int]]]:
    by_query: dict[str, dict[str, int]] = defaultdict(dict)
    for path in sorted((folder / "qrels").glob("*.tsv")):
        with path.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream, delimiter="\t"):
                by_query[row["query-id"]][row["corpus-id"]] = int(row["score"])
    yield from by_query.items()


def _ndcg(
    scores: Floats,
    queries: Sequence[Mapping[str, str]],
    corpus: Sequence[Mapping[str, str]],
    judged: Mapping[str, Mapping[str, int]],
) -> float:
    """Return the mean nDCG@10 of the judged queries (Järvelin & Kekäläinen 2002)."""
    discounts = 1 / np.log2(np.arange(2, _CUT + 2))
    values = []
    for row, query in zip(scores, queries, strict=True):
        grades = judged.get(query["_id"], {})
        best = np.array(sorted(grades.values(), reverse=True)[:_CUT], np.float64)
        if not best.any():
            continue
        top = np.argsort(-row, kind="stable")[:_CUT]
        gains = np.array([grades.get(corpus[at]["_id"], 0) for at in top], np.float64)
        values.append(float(gains @ discounts / (best @ discounts[: len(best)])))
    return float(np.mean(values))
