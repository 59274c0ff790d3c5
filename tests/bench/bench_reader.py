"""What does a reader gain that is trained on a user's own questions?

The "user's file" are the SQuAD 2.0 questions of `--articles` articles, of the twelve that the
shipped head `qa` was neither trained on nor chosen with. It goes the way of
`verso train head NAME --task answer`: split by article, trained within `--minutes` of processor
time, null threshold set on validation articles, measured on test articles.
Three heads are made of it:

- *as it is*: the shipped head's weights, only the threshold is set anew;
- *afresh*: an adapter that begins at the encoder;
- *from qa*: an adapter that begins at the shipped head's.

One thread; limited by the processor.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import sheet
import torch

from verso_core import manifest, questions, registry
from verso_core.questions import Paragraph
from verso_training.heads import graph, reading, recipe
from verso_training.heads.context import TrainingContext
from verso_training.heads.shipping import Provenance

_SMALL = {"epochs": 1e-3, "rate": 1e-12}
"""One step that changes nothing: the head as it is."""


def users_file(data: Path, *, articles: int) -> list[Paragraph]:
    """Read the first articles that are in no part `qa` was trained on or chosen with."""
    folder = data / "qa_squad"
    known = json.loads((folder / "split_by_article.json").read_text())["eval"]
    titles = set(sorted(known)[:articles])
    with lzma.open(folder / "squad2_dev_shared.json.xz", "rt", encoding="utf-8") as stream:
        document = json.load(stream)
    return questions.read({"data": [a for a in document["data"] if a["title"] in titles]})


def main() -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, required=True, help="folder of the public data sets")
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--articles", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--rate", type=float, default=recipe.AnswerConfig.rate)
    options = parser.parse_args()
    page = sheet.Sheet("reader")
    artifact = registry.resolve(options.models)
    space = manifest.load(artifact).manifest.space.id
    shipped = graph.load(registry.head(options.models, "qa"), space=space)
    paragraphs = users_file(options.data, articles=options.articles)
    settings: dict[str, Any] = {"minutes": options.minutes, "rate": options.rate}
    found = {}
    for name, begin, more in (
        ("as it is", shipped, _SMALL),
        ("from qa", shipped, {}),
        ("afresh", None, {}),
    ):
        torch.manual_seed(0)
        began = time.process_time()
        with tempfile.TemporaryDirectory() as out:
            made = reading.train_reader(
                recipe.parse(
                    {
                        "name": "manual",
                        "task": "answer",
                        "reads": "token_pair",
                        "answer": settings | more,
                    }
                ),
                paragraphs,
                TrainingContext(
                    artifact=artifact,
                    out_dir=Path(out),
                    provenance=Provenance(("qa_squad",), "CC BY-SA 4.0", "bench_reader"),
                    run=Path(out) / "run",
                    on_progress=lambda _: None,
                    should_stop=lambda: False,
                    start=begin,
                ),
            )
        found[name] = dict(made.head.metrics) | {"cpu_s": time.process_time() - began}
    columns = ("test_f1", "test_f1_answerable", "test_refused", "test_auroc_answerable", "cpu_s")
    sheet.table(
        f"{sum(made.rows.values())} questions: {dict(made.rows)}",
        ("head", *columns),
        [(name, *(row[c] for c in columns)) for name, row in found.items()],
    )
    page.finish({"rows": dict(made.rows), "heads": found, "rate": options.rate})
    return 0


if __name__ == "__main__":
    sys.exit(main())
