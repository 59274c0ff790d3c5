r"""Command line of the studies. Run it in the folder `training`, or with `training` in PYTHONPATH.

python -m studies head --recipe intents --data DIR --artifact models/default \
    --work WORK --out models/heads
python -m studies quality --data DIR --artifact models/default --models models \
    --work WORK --out docs/research/quality.md
python -m studies tasks --data DIR --artifact models/default --work WORK \
    --out docs/research/quality.md [--only STUDY ...]
python -m studies compare --data DIR --work WORK [--minutes N] [--only ARM ...]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from tqdm import tqdm

from studies.comparison import runs
from studies.comparison.arms import ARMS
from studies.quality import shipped
from studies.quality.classification import Bench
from studies.quality.job import Job, load_recipe
from studies.quality.report import page
from studies.tasks import catalogue
from studies.tasks.pages import missed
from studies.tasks.pages import page as tasks
from verso_core.errors import VersoError
from verso_training import config, encoder


def main(argv: Sequence[str] | None = None) -> int:
    """Run one study; return 0 if it succeeded, 1 after printing an error."""
    options = _parser().parse_args(argv)
    try:
        options.command(options)
    except VersoError as exc:
        print(f"{exc.code}: {exc.detail}", file=sys.stderr)
        return 1
    return 0


def _quality(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    bench = Bench(data=options.data, artifact=options.artifact, work=options.work)
    old = options.out.read_text(encoding="utf-8") if options.out.exists() else ""
    text = page(bench, models=options.models, command="make evaluate")
    # The studies take hours: without their results the section of the old page is kept.
    found = catalogue.found(bench)
    text = tasks.replaced(text, tasks.section(found) or tasks.kept(old))
    options.out.write_text(text, encoding="utf-8")
    causes = missed.section(found, options.out.parent) or tasks.kept(old, missed.TITLE)
    text = tasks.replaced(text, causes)
    options.out.write_text(text, encoding="utf-8")
    print(text)


def _tasks(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    bench = Bench(data=options.data, artifact=options.artifact, work=options.work)
    found = catalogue.run(bench, options.only or catalogue.STUDIES)
    section = tasks.section(found)
    print(section)
    if options.out is not None:
        text = tasks.replaced(options.out.read_text(encoding="utf-8"), section)
        causes = missed.section(found, options.out.parent)
        print(causes)
        options.out.write_text(tasks.replaced(text, causes), encoding="utf-8")


def _compare(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    start = runs.timed(config.load("compare"), options.minutes)
    arms = [arm for arm in ARMS if not options.only or arm.name in options.only]
    prepared = runs.prepared(
        start,
        options.data,
        folder=options.work / "prepared",
        load_encoder=lambda: encoder.load(options.encoder or encoder.shipped_folder()),
    )
    found = runs.run(arms, start, prepared=prepared, work=options.work)
    print(runs.table(found))
    print(runs.json_line(found, start))


def _head(options: argparse.Namespace) -> None:
    with tqdm(total=100, unit="%", desc=options.recipe) as bar:
        head = shipped.train(
            load_recipe(options.recipe),
            Job(
                data=options.data,
                artifact=options.artifact,
                out_dir=options.out,
                work=options.work,
                on_progress=lambda p: bar.update(round(100 * p.share) - bar.n),
            ),
        )
    print(f"{head.name}/{head.version}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m studies",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)

    def command(name: str, run: object, summary: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=summary)
        added.set_defaults(command=run)
        added.add_argument("--data", type=Path, required=True, help="folder of the public data")
        return added

    head = command("head", _head, "train a head that ships, from the public data sets")
    head.add_argument("--recipe", required=True, help="a name in recipes/heads or a TOML file")
    head.add_argument("--artifact", type=Path, required=True, help="the encoder's artifact")
    head.add_argument("--work", type=Path, required=True, help="for vectors and checkpoints")
    head.add_argument("--out", type=Path, required=True, help="models/heads")

    tables = command("quality", _quality, "measure the heads on public sets and write a page")
    tables.add_argument("--artifact", type=Path, required=True)
    tables.add_argument("--models", type=Path, required=True, help="folder with registry.json")
    tables.add_argument("--work", type=Path, required=True, help="for vectors; kept")
    tables.add_argument("--out", type=Path, required=True, help="the page, Markdown")

    published = command("tasks", _tasks, "repeat published experiments; hours of one core")
    published.add_argument("--artifact", type=Path, required=True)
    published.add_argument("--work", type=Path, required=True, help="keeps each study's results")
    published.add_argument("--only", nargs="+", metavar="STUDY", help="instead of all")
    published.add_argument("--out", type=Path, help="the page whose section is replaced")

    arms = command("compare", _compare, "train decoders that differ in one thing, one hour")
    arms.add_argument("--encoder", type=Path, help="folder of the sentence encoder")
    arms.add_argument("--work", type=Path, required=True, help="keeps each decoder's results")
    arms.add_argument("--minutes", type=float, help="processor time of each, not the recipe's")
    arms.add_argument("--only", nargs="+", metavar="ARM", help="instead of all")
    return parser


if __name__ == "__main__":
    sys.exit(main())
