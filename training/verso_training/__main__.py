r"""Command line of training.

python -m verso_training prepare --recipe cpu --data DIR --out PREPARED
python -m verso_training train --recipe cpu --prepared PREPARED --run RUN [--resume]
python -m verso_training tables --recipe cpu --data DIR --out TABLES
python -m verso_training publish --prepared PREPARED --run RUN --tables TABLES --data DIR \
    --out models/default
python -m verso_training evaluate --run RUN --data DIR --artifact models/default
python -m verso_training fit --artifact models/default --texts FILE --out models/NAME
python -m verso_training serve
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tqdm import tqdm

from verso_core import manifest
from verso_core.errors import VersoError
from verso_core.registry import Channel, assign
from verso_training import config, encoder
from verso_training.artifact import collection, evaluate
from verso_training.artifact.publish import Trained, publish, write_text_tables
from verso_training.data import chunks, dataset, sources
from verso_training.decoder import train


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 if it succeeded, 1 after printing an error."""
    options = _parser().parse_args(argv)
    try:
        options.command(options)
    except VersoError as exc:
        print(f"{exc.code}: {exc.detail}", file=sys.stderr)
        return 1
    return 0


def _serve(_: argparse.Namespace) -> None:
    # The service alone is `python -m verso_training.service`, which loads no torch.
    from verso_training.service.main import main as serve

    serve()


def _prepare(options: argparse.Namespace) -> None:
    recipe = config.load(options.recipe)
    torch.set_num_threads(recipe.train.threads)
    with tqdm(unit="chunk", desc="encode") as bar:
        dataset.prepare(
            recipe,
            sources.documents(options.data),
            folder=options.out,
            sentence_encoder=encoder.load(options.encoder or encoder.shipped_folder()),
            progress=bar.update,
        )


def _train(options: argparse.Namespace) -> None:
    recipe = config.load(options.recipe)
    if options.minutes is not None:
        timed = dataclasses.replace(recipe.train, minutes=options.minutes)
        recipe = dataclasses.replace(recipe, train=timed)
    if options.conditioning is not None:
        model = dataclasses.replace(recipe.model, conditioning=options.conditioning)
        recipe = dataclasses.replace(recipe, model=model)
    resume = options.resume and train.is_saved(options.run)
    train.Run(recipe, data=options.prepared, folder=options.run, resume=resume).train()


def _tables(options: argparse.Namespace) -> None:
    recipe = config.load(options.recipe)
    write_text_tables(sources.documents(options.data), folder=options.out, recipe=recipe)


def _publish(options: argparse.Namespace) -> None:
    recipe, decoder = train.load_decoder(options.run)
    sentence_encoder, wordpiece = encoder.load(options.encoder or encoder.shipped_folder())
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
    texts = chunks.draw_held_out(
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
    command("serve", _serve, "the training service: run train jobs until SIGTERM")
    return parser


def _decoder_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    def add(to: argparse.ArgumentParser, **folders: str | None) -> None:
        for name, summary in folders.items():
            to.add_argument(f"--{name}", type=Path, required=True, help=summary)

    prepare = command("prepare", _prepare, "turn texts into tokens and vectors, once per recipe")
    fit = command("train", _train, "train a decoder within its wall-clock budget")
    count = command("tables", _tables, "n-gram tables and the zstd dictionary; needs no decoder")
    for one in (prepare, fit, count):
        one.add_argument("--recipe", required=True, help="a name in recipes/ or a TOML file")
    add(prepare, data="folder of the public data sets", out=None)
    add(fit, prepared="folder written by prepare", run=None)
    fit.add_argument("--minutes", type=float, help="budget instead of the recipe's")
    fit.add_argument(
        "--conditioning", type=config.Conditioning, choices=[*config.Conditioning],
        help="instead of the recipe's",
    )  # fmt: skip
    resumed = "continue from the last checkpoint, if there is one"
    fit.add_argument("--resume", action="store_true", help=resumed)
    add(count, data=None, out=None)

    ship = command("publish", _publish, "export graphs, fit tables, write the artifact folder")
    add(ship, prepared=None, run=None, tables="folder written by tables", data=None, out=None)
    measured = "measure an artifact's bits per byte on held-out texts"
    add(command("evaluate", _evaluate, measured), run=None, data=None, artifact=None)

    adapt = command("fit", _fit, "fit an artifact's codec to one collection's texts")
    add(adapt, artifact="the artifact to start from", texts="file of texts, one a line", out=None)
    adapt.add_argument("--minutes", type=float, help="train the decoder too, minutes")


if __name__ == "__main__":
    sys.exit(main())
