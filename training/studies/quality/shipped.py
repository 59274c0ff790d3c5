"""The heads that ship, trained from the public data sets by a recipe: ``head --recipe NAME``."""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from studies.answers import taught
from studies.answers.taught import Taught
from studies.documents import classifier, served, stored
from studies.documents.data import Document
from studies.documents.fitting import HeldOut
from studies.intents import outliers
from studies.quality import again, limits, pairsets, ranker, selection, sets, similarity, squad
from studies.quality.classification import Bench
from studies.quality.job import Job, command, digest, kept_note
from studies.quality.sets import LabelledSet
from studies.quality.squad import Part
from studies.quality.vector_pair import PairPooling, VectorPair
from verso_core import heads, manifest
from verso_core.heads import Reads, Task
from verso_core.jobs import Precision
from verso_training.artifact.graphs import EncoderGraph
from verso_training.config import RecipeInvalid
from verso_training.heads import (
    backbone,
    confidence,
    fitting,
    graph,
    questions,
    reader,
    reading,
    scoring,
    shipping,
    vector_classifier,
)
from verso_training.heads import recipe as recipes
from verso_training.heads.context import TrainingContext
from verso_training.heads.modules import CrossEncoder
from verso_training.heads.recipe import AnswerConfig, HeadRecipe
from verso_training.heads.rows import Checked, Row, RowSplit
from verso_training.heads.shipping import Provenance, Trained

_GOLDEN_TOKENS = 96
"""Golden samples are short windows: they are run at every start of a worker."""
_READER_NOTES = (
    "SQuAD 2.0 questions, split by article: no article of dev or eval was trained on; dev is the",
    "validation part.",
)
_READ = Provenance(
    ("qa_squad (training articles)", "qa_qamr"), "CC BY-SA 4.0 (SQuAD), MIT (QAMR)", "", ""
)
WARM_SHARE = 0.12
"""Of a reader's minutes, for QAMR's questions."""
_NEAR = 5.0
"""Weight of a question that is out of scope: there are a fifth as many as texts of other kinds."""
_STRANGE = 200
_WITHOUT_MEANING = ("unlabelled",)


def train(recipe: HeadRecipe, job: Job) -> heads.Head:
    """Train, measure and write the head of a recipe.

    Raises:
        RecipeInvalid: the recipe names sets that no head is made of, or weights are given to one
            in which nothing is trained.
        HeadInvalid: the weights given do not fit the recipe.
        SpaceMismatch: the weights given read another space.
    """
    if job.weights is not None and recipe.reads is Reads.VECTOR_PAIR:
        raise RecipeInvalid("expected no weights for a head in which nothing is trained")
    torch.set_num_threads(recipe.threads)
    made = {Task.CLASSIFY: _classifier, Task.ANSWER: _reader, Task.SCORE: _scorer}[recipe.task]
    return made(recipe, job)


def _classifier(recipe: HeadRecipe, job: Job) -> heads.Head:
    if recipe.reads is Reads.DOCUMENT:
        return _documents(recipe, job)
    if recipe.reads is not Reads.VECTOR:
        raise RecipeInvalid(f"expected reads = vector or document, got {recipe.reads}")
    groups = [_labelled(name, job.data) for name in recipe.data.get("sets", ())]
    scale = manifest.load(job.artifact).manifest.space.int8_scale
    examples = []
    for group in groups:
        for split in RowSplit:
            read = group.of(split)
            if job.weights is not None and split is not RowSplit.TEST:
                examples += [row for row in read if row.label not in _WITHOUT_MEANING]
                continue  # nothing is trained
            vectors = sets.stored_vectors(
                [str(row.text) for row in read],
                artifact=job.artifact,
                cache=job.work / "vectors" / f"{group.name}-{split}",
                scale=scale,
            )
            examples += [
                Row(_named(group, row.label), row.text, vector, split)
                for row, vector in zip(read, vectors, strict=True)
                if row.label not in _WITHOUT_MEANING
            ]
    if each := int(recipe.data.get("outliers", 0)):
        examples = [
            replace(row, weight=_NEAR) if row.label == recipe.none_label else row
            for row in examples
        ]
        examples += _outliers(recipe, job, each=each, scale=scale)
    strange = {}
    if each:
        for kind, texts in outliers.strange(job.data, each=_STRANGE).items():
            cache = job.work / "vectors" / f"strange-{_STRANGE}-{kind.replace(' ', '_')}"
            strange[kind] = sets.stored_vectors(
                texts, artifact=job.artifact, cache=cache, scale=scale
            )
        asked = [
            row.vector
            for row in examples
            if (row.label, row.split, row.weight) == (recipe.none_label, RowSplit.TEST, _NEAR)
        ]
        strange["questions out of scope"] = np.stack([one for one in asked if one is not None])
    context = _context(recipe, job, groups)
    if job.weights is not None:
        checked = context.checked(recipe, examples)
        return again.classifier(recipe, job.weights, checked, context, strange=strange)
    return vector_classifier.train_head(recipe, examples, context, strange=strange).head


def _outliers(recipe: HeadRecipe, job: Job, *, each: int, scale: float) -> list[Row]:
    """Texts that mean no label, as rows of the label that means so; a blank one has no text."""
    made = outliers.outliers(job.data, each=each, seed=recipe.seed)
    vectors = sets.stored_vectors(
        [one.text for one in made],
        artifact=job.artifact,
        cache=job.work / "vectors" / f"outliers-{each}-{recipe.seed}",
        scale=scale,
    )
    assert recipe.none_label is not None
    return [
        Row(recipe.none_label, one.text if one.text.strip() else None, vector, one.split)
        for one, vector in zip(made, vectors, strict=True)
    ]


def _documents(recipe: HeadRecipe, job: Job) -> heads.Head:
    """A classifier of all chunks of a text, and of its terms."""
    groups = [_labelled(name, job.data) for name in recipe.data.get("sets", ())]
    read: dict[str, Document] = {}
    examples = []
    for group in groups:
        for split in RowSplit:
            rows = [row for row in group.of(split) if row.label not in _WITHOUT_MEANING]
            examples += [replace(row, label=_named(group, row.label)) for row in rows]
            if job.weights is not None and split is RowSplit.TRAIN:
                continue  # nothing is trained
            read |= _read(recipe, job, group, split)
    context = _context(recipe, job, groups)

    def read_again(texts: Sequence[str]) -> list[Document]:
        return [read[text] for text in texts]

    if job.weights is not None:
        checked = context.checked(recipe, examples)
        shifts = {sets.LOG_FAMILIES[group.name]: group.shift for group in groups}
        return limits.publish(job.weights, recipe, checked, context, read=read_again, shifts=shifts)
    return classifier.train_document_head(recipe, examples, context, read=read_again).head


def outputs_of(
    folder: Path,
    split: RowSplit,
    *,
    data: Path,
    artifact: Path,
    work: Path,
    precision: Precision = Precision.INT8,
) -> confidence.Outputs:
    """Return what a head that reads documents says of the rows of a split, as they were checked."""
    recipe = recipes.parse(heads.load(folder).head.lineage.recipe)
    job = Job(data, artifact, folder.parent.parent, work, on_progress=lambda _: None)
    checked, read = _checked(recipe, job, [split], precision)
    documents = [read[str(row.text)] for row in checked.of(split)]
    return served.outputs(folder, documents, checked.targets(split))


def held_out_of(recipe: HeadRecipe, job: Job) -> confidence.Outputs:
    """Return what layers of a recipe with folds say of the rows that they were not fitted on."""
    if not recipe.classify.folds:
        raise RecipeInvalid(f"expected classify.folds in the recipe {recipe.name}, got none")
    return validated(recipe, job).outputs


def validated(recipe: HeadRecipe, job: Job) -> HeldOut:
    """Return what a recipe's layers say of rows that they were not fitted on, test rows aside."""
    torch.set_num_threads(recipe.threads)
    checked, read = _checked(recipe, job, [RowSplit.TRAIN, RowSplit.VALIDATION])
    return classifier.validated(
        recipe, checked, job.on_progress, read=lambda texts: [read[text] for text in texts]
    )


def rows_of(folder: Path, *, data: Path, artifact: Path, work: Path) -> Checked:
    """Return the rows that a head which reads documents was trained and measured on."""
    recipe = recipes.parse(heads.load(folder).head.lineage.recipe)
    return checked(recipe, Job(data, artifact, folder.parent.parent, work, lambda _: None))


def checked(recipe: HeadRecipe, job: Job) -> Checked:
    """Return the rows of a recipe for documents, as a training takes them."""
    return _checked(recipe, job, [])[0]


def texts_of(recipe: HeadRecipe, data: Path) -> dict[str, dict[RowSplit, list[str]]]:
    """Return the labelled texts of each set of a recipe, by split."""
    return {
        name: {
            split: [str(r.text) for r in group.of(split) if r.label not in _WITHOUT_MEANING]
            for split in RowSplit
        }
        for name in recipe.data.get("sets", ())
        for group in [_labelled(name, data)]
    }


def _checked(
    recipe: HeadRecipe,
    job: Job,
    splits: Sequence[RowSplit],
    precision: Precision = Precision.INT8,
) -> tuple[Checked, dict[str, Document]]:
    """Return the rows of a recipe, and what is read of those of some splits."""
    groups = [_labelled(name, job.data) for name in recipe.data.get("sets", ())]
    examples: list[Row] = []
    read: dict[str, Document] = {}
    for group in groups:
        rows = [row for row in group.rows if row.label not in _WITHOUT_MEANING]
        examples += [replace(row, label=_named(group, row.label)) for row in rows]
        for split in splits:
            read |= _read(recipe, job, group, split, precision)
    return _context(recipe, job, groups).checked(recipe, examples), read


def _read(
    recipe: HeadRecipe,
    job: Job,
    group: LabelledSet,
    split: RowSplit,
    precision: Precision = Precision.INT8,
) -> dict[str, Document]:
    """Return what is read of the texts of a split."""
    most = recipe.classify.max_chunks
    texts = [str(row.text) for row in group.of(split) if row.label not in _WITHOUT_MEANING]
    found = stored.documents(
        texts,
        artifact=job.artifact,
        cache=job.work / "documents" / f"{group.name}-{split}-{most}",
        most=most,
        every=recipe.data.get("every", {}).get(group.name, {}).get(str(split), 1),
        precision=precision,
    )
    return dict(zip(texts, found, strict=True))


def _context(recipe: HeadRecipe, job: Job, groups: Sequence[LabelledSet]) -> TrainingContext:
    provenance = Provenance(
        tuple(
            group.name if group.shift == "none" else f"{group.name} (split {group.shift})"
            for group in groups
        ),
        " and ".join(sorted({group.licence for group in groups})),
        command(recipe),
    )
    return TrainingContext(
        job.artifact,
        job.out_dir,
        provenance,
        on_progress=job.on_progress,
        should_stop=job.should_stop,
    )


def _labelled(name: str, data: Path) -> LabelledSet:
    if name == "intent_clinc150":
        return sets.clinc(data)
    if name in sets.LOG_SETS:
        return sets.logs(data, name)
    raise RecipeInvalid(f"expected a labelled set that may be shipped, got {name!r}")


def _named(group: LabelledSet, label: str) -> str:
    family = sets.LOG_FAMILIES.get(group.name)
    return label if family is None else f"{family}/{label}"


def _reader(recipe: HeadRecipe, job: Job) -> heads.Head:
    base = backbone.load(job.artifact)
    config = recipe.answer
    torch.manual_seed(recipe.seed)
    if job.taught is not None:
        module = reader.Reader(base, config)
        backbone.restore(module, load_file(job.taught / taught.WEIGHTS))
        return _ship_reader(recipe, job, base, module, config, of=Taught.load(job.taught))
    module = reader.Reader(base, config, layers=(config.layers, *config.beside))
    if job.weights is not None:
        space = manifest.load(job.artifact).manifest.space.id
        start = graph.load(job.weights, space=space)
        start.restore(module.only(config.layers))
        return _ship_reader(recipe, job, base, module, config, of=start.head)
    asked = squad.read(job.data, Part.TRAIN)
    share = float(recipe.data.get("share", 1.0))  # below 1 for a learning curve
    if share < 1.0:
        asked = random.Random(recipe.seed).sample(asked, round(share * len(asked)))
    short = [*qamr(job.data, "dev"), *qamr(job.data, "test")]
    main = [*asked, *questions.mined(asked, count=round(share * 2600))]

    def windows(asked: list[questions.Question]) -> list[questions.Window]:
        made = questions.windows(
            asked,
            base.tokenizer,
            max_tokens=config.max_tokens,
            stride=config.stride,
            all_windows=False,
        )
        return list(made)

    folder = job.work / "runs" / recipe.name
    if not (folder / "finished").exists():
        budget = fitting.Budget(
            config.minutes,
            config.epochs,
            config.rate,
            config.tokens_per_step,
            warm_share=WARM_SHARE,
        )
        run = fitting.AdapterRun(
            module,
            budget,
            main=windows(main),
            warm=windows(short),
            losses=module.losses,
            folder=folder,
        )
        run.train(on_progress=job.on_progress, should_stop=job.should_stop)
        (folder / "finished").touch()
    backbone.restore(module, load_file(folder / "adapter.safetensors"))
    return _ship_reader(recipe, job, base, module, config, of=digest([*main, *short]))


def _ship_reader(
    recipe: HeadRecipe,
    job: Job,
    base: backbone.Backbone,
    module: reader.Reader,
    config: AnswerConfig,
    *,
    of: str | heads.Head | Taught,
) -> heads.Head:
    """Choose the thresholds, measure and write: of the digest of rows, a head, or a study's run."""
    only = module.only(config.layers)
    dev, rest = (squad.read(job.data, part) for part in (Part.DEV, Part.EVAL))
    encode = EncoderGraph(job.artifact, threads=recipe.threads).encode
    figures = reading.measured(only, base, config, encode=encode, validation=dev, test=rest)
    notes = [*_READER_NOTES, reading.threshold_note(figures)]
    if isinstance(of, str):
        made = replace(_READ, command=command(recipe), data_sha256=of)
    elif isinstance(of, Taught):
        made = Provenance(of.data, of.licence, f"{command(recipe)} --taught RUN", of.data_sha256)
        notes += ["", of.note]
    else:
        own = of.lineage
        made = Provenance(
            own.data, own.licence, command(recipe, weights=of.version), own.data_sha256
        )
        notes += ["", kept_note(of)]
    if figures.relevance is not None:
        notes += ["", reading.relevance_note(figures.relevance)]
    samples = [
        window
        for window in questions.windows(
            dev,
            base.tokenizer,
            max_tokens=_GOLDEN_TOKENS,
            stride=16,
            all_windows=False,
        )
        if len(window.ids) <= _GOLDEN_TOKENS
    ][:12]
    trained = Trained(
        recipe=recipe,
        module=only,
        outputs=("start", "end"),
        samples=[graph.pair_inputs(window.ids, second=window.context_from) for window in samples],
        provenance=made,
        card=shipping.reader(
            {
                "eval articles": (figures.threshold, figures.test),
                "eval articles, best F1 on dev": (figures.best, figures.test_best),
                "eval articles, not tuned": (0.0, figures.untuned),
                "dev articles, chosen on": (figures.threshold, figures.validation),
            },
            auroc=figures.auroc,
            notes=notes,
        ),
        calibration=figures.calibration,
        metrics={
            "dev_f1": figures.validation.f1.value,
            "eval_questions": float(len(rest)),
            "eval_exact": figures.test.exact.value,
            "eval_f1": figures.test.f1.value,
            "eval_f1_answerable": figures.test.answerable_f1.value,
            "eval_refused": figures.test.refused.value,
            "eval_given": figures.test.given.value,
            "eval_right": figures.test.right.value,
            "eval_exact_best": figures.test_best.exact.value,
            "eval_f1_best": figures.test_best.f1.value,
            "eval_f1_untuned": figures.untuned.f1.value,
            "eval_auroc_answerable": figures.auroc.value,
            **figures.reliability,
        },
        sources=base.sources,
        max_tokens=config.max_tokens,
        stride=config.stride,
    )
    folder = shipping.publish(trained, artifact=job.artifact, out_dir=job.out_dir)
    return heads.load(folder).head


def _scorer(recipe: HeadRecipe, job: Job) -> heads.Head:
    if recipe.reads is Reads.VECTOR_PAIR:
        return _cosine(recipe, job)
    if "wrong" in recipe.data:
        return ranker.train(recipe, job)
    base = backbone.load(job.artifact)
    config = recipe.score
    torch.manual_seed(recipe.seed)
    module = CrossEncoder(backbone.adapt(base, rank=config.rank, alpha=config.alpha))
    folder = job.work / "runs" / recipe.name
    shown = pairsets.shippable(job.data, seed=recipe.seed)
    if job.weights is not None:
        return again.scorer(recipe, job, base, module)
    if not (folder / "finished").exists():
        budget = fitting.Budget(config.minutes, config.epochs, config.rate, config.tokens_per_step)
        examples = scoring.tokenised(
            shown,
            base.tokenizer,
            max_tokens=config.max_tokens,
        )
        run = fitting.AdapterRun(
            module, budget, main=examples, losses=scoring.losses(module), folder=folder
        )
        run.train(on_progress=job.on_progress, should_stop=job.should_stop)
        (folder / "finished").touch()
    backbone.restore(module, load_file(folder / "adapter.safetensors"))
    module.eval()
    figures = selection.scorer(module, base, data=job.data, max_tokens=config.max_tokens)
    golden = scoring.tokenised(
        pairsets.snli(job.data, "test")[:12], base.tokenizer, max_tokens=config.max_tokens
    )
    trained = Trained(
        recipe=recipe,
        module=module,
        outputs=("score",),
        samples=[graph.pair_inputs(pair.ids, second=pair.second) for pair in golden],
        provenance=replace(again.SCORED, command=command(recipe), data_sha256=digest(shown)),
        card=selection.scorer_card(figures),
        metrics=selection.values(figures),
        sources=base.sources,
        max_tokens=config.max_tokens,
    )
    return heads.load(shipping.publish(trained, artifact=job.artifact, out_dir=job.out_dir)).head


def _cosine(recipe: HeadRecipe, job: Job) -> heads.Head:
    """The cosine of the encoder's own vectors: a head in which nothing is trained."""
    bench = Bench(job.data, job.artifact, job.work)
    figures = similarity.ranked_by_cosine(bench)
    space = manifest.load(job.artifact).manifest.space
    rows = [row for rankings in selection.reported(job.data).values() for row in rankings[:6]]
    vectors = sets.stored_vectors(
        [text for row in rows for text in (row.question, row.candidates[0])],
        artifact=job.artifact,
        cache=job.work / "vectors" / f"golden-{recipe.name}",
        scale=space.int8_scale,
    )
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    trained = Trained(
        recipe=recipe,
        module=VectorPair(PairPooling.COSINE, dim=space.dim),
        outputs=("score",),
        samples=[{"u": u, "v": v} for u, v in zip(vectors[::2], vectors[1::2], strict=True)],
        provenance=Provenance(
            ("none: nothing was trained",), "Apache-2.0", command(recipe), digest(())
        ),
        card="The cosine of the two texts' vectors, 0 where it is negative.\n\n"
        + selection.scorer_card(figures),
        metrics=selection.values(figures),
    )
    return heads.load(shipping.publish(trained, artifact=job.artifact, out_dir=job.out_dir)).head


def qamr(root: Path, part: str) -> list[questions.Question]:
    """Return short questions on single sentences, for training only."""
    with lzma.open(root / "qa_qamr" / f"{part}.jsonl.xz", "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    return [
        questions.Question(
            row["id"],
            row["question"],
            row["context"],
            tuple(answer["text"] for answer in row["answers"]),
        )
        for row in rows
    ]
