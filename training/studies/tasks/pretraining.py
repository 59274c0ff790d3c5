"""BERT's two objectives on the encoder as it is: its last layer and a head learn them, no more.

Masked language model (Devlin et al. 2019, section 3.1), whose loss is over all tokens or counts the
masked and replaced ones twice over (Decodable Sentence-BERT, eq. 5 and 13), and next-sentence
prediction. Trained on prose documents, reported on documents that were held out: a hash of their
name decides, so that no book is on both sides. The head's form was chosen on training documents.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import BertModel

from studies.papers.kept import Figures, ends, with_interval
from studies.quality.classification import Bench
from studies.tasks import objectives, steps
from studies.tasks.pages.paragraphs import wrapped
from studies.tasks.result import StudyResult
from studies.tasks.steps import Rates, Spent, Task
from verso_training import device, encoder
from verso_training.data import sources
from verso_training.data.sources import Document, Split
from verso_training.heads import backbone
from verso_training.heads.questions import special
from verso_training.heads.signals import bootstrap

STUDY = "pretraining-objectives"
PROSE = frozenset({"techdocs", "books", "factbook"})
SHOWN, REPORTED = 2500, 800
"""Pairs of sentences."""
MAX_TOKENS = 64
RATES = Rates(5e-4, 1e-3)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
_WORDS = range(5, 41)
_PER_DOCUMENT = 8
_BATCH = 64


@dataclass(frozen=True)
class Following:
    """A sentence, the one behind it, and ones that are not: of the same text and of another."""

    first: str
    second: str
    near: str
    far: str


@dataclass(frozen=True)
class Example:
    """``[CLS] a [SEP] b [SEP]`` and whether b follows a; without a b, ``[CLS] a [SEP]``."""

    ids: list[int]
    second: int
    follows: int


class MaskedReader(nn.Module):
    """States that the encoder's own word embeddings are to tell tokens from."""

    def __init__(self, bert: BertModel) -> None:
        super().__init__()
        width = int(bert.config.hidden_size)
        self.bert = bert
        self.embedding: Tensor = bert.embeddings.word_embeddings.weight
        """E. Shape: (V, D)."""
        layer = nn.Linear(width, width)
        nn.init.eye_(layer.weight)
        self.head = nn.Sequential(layer, nn.LayerNorm(width))

    def forward(self, ids: Tensor, attended: Tensor) -> Tensor:
        """Shape: twice (B, T) to (B, T, D)."""
        states = self.bert(input_ids=ids, attention_mask=attended).last_hidden_state
        found: Tensor = self.head(states)
        return found


class NextSentence(nn.Module):
    """Does b follow a? One layer on the state of [CLS]."""

    def __init__(self, bert: BertModel) -> None:
        super().__init__()
        self.bert = bert
        self.layer = nn.Linear(int(bert.config.hidden_size), 2)

    def forward(self, batch: Sequence[Example]) -> Tensor:
        """States of [CLS]. Shape: (B, D)."""
        ids, mask = encoder.padded([one.ids for one in batch])
        starts = torch.tensor([[one.second] for one in batch])
        types = (torch.arange(ids.shape[1])[None] >= starts).long() * mask
        ids, mask, types = device.beside(self, (ids, mask, types))
        states = self.bert(input_ids=ids, attention_mask=mask, token_type_ids=types)
        return states.last_hidden_state[:, 0]  # type: ignore[no-any-return]


def run(bench: Bench) -> StudyResult:
    """Train both objectives, each both ways, and measure them on held-out documents."""
    base = backbone.load(bench.artifact)
    shown, held = drawn(sources.documents(bench.data))
    figures: dict[str, float] = {"shown": len(shown), "reported": len(held)}
    spent: dict[str, Spent] = {}
    texts, asked = (masked_examples(rows, base.tokenizer) for rows in (shown, held))
    figures["masked_usual"] = usual(texts, asked)
    mask_id, words = special(base.tokenizer, "[MASK]"), base.tokenizer.get_vocab_size()
    for name, extra in (("plain", False), ("extra", True)):
        reader = MaskedReader(_last_layer(base.bert))
        cost = masked_losses(reader, mask_id=mask_id, extra=extra)
        task = Task(f"masked_{name}", reader, texts, cost, words, 1, tokens_per_step=512)
        spent[task.name] = _trained(task)
        for kind, share in recovered(reader, asked, mask_id=mask_id).items():
            figures[f"{task.name}_{kind}"] = share
    for wrong in ("far", "near"):
        model = NextSentence(_last_layer(base.bert))
        pairs, asked = (next_examples(rows, base.tokenizer, wrong=wrong) for rows in (shown, held))
        task = Task(f"next_{wrong}", model, pairs, next_losses(model), 2, 1)
        spent[task.name] = _trained(task)
        figures[task.name] = accuracy(model, asked)
    return StudyResult(STUDY, figures, {}, spent)


def drawn(documents: Iterator[Document]) -> tuple[list[Following], list[Following]]:
    """Sentences of prose to train on, and of held-out documents to report."""
    rng = random.Random(0)
    parts: dict[Split, list[list[str]]] = {split: [] for split in Split}
    for document in itertools.takewhile(lambda one: one.family in PROSE, documents):
        parts[document.split].append(_run_of_sentences(document.text))
    limits = {Split.TRAIN: SHOWN, Split.VALIDATION: REPORTED}
    return (
        _following(parts[Split.TRAIN], limits[Split.TRAIN], rng),
        _following(parts[Split.VALIDATION], limits[Split.VALIDATION], rng),
    )


def _run_of_sentences(text: str) -> list[str]:
    """Those of the paragraph that has most, of a usual length."""
    found: list[str] = []
    for paragraph in text.split("\n\n"):
        sentences = _SENTENCE.split(" ".join(paragraph.split()))
        if all(len(s.split()) in _WORDS for s in sentences) and len(sentences) > len(found):
            found = sentences
    return found


def _following(texts: list[list[str]], count: int, rng: random.Random) -> list[Following]:
    """Sentences behind one another; the near one stands two or more places away."""
    texts = [text for text in texts if len(text) >= 4]
    rng.shuffle(texts)
    made: list[Following] = []
    for number, text in enumerate(texts):
        other = texts[(number + 1) % len(texts)]
        for at in rng.sample(range(len(text) - 1), min(_PER_DOCUMENT, len(text) - 1)):
            near = rng.choice([s for i, s in enumerate(text) if not at <= i <= at + 1])
            made.append(Following(text[at], text[at + 1], near, rng.choice(other)))
    return rng.sample(made, min(count, len(made)))


def masked_examples(rows: Sequence[Following], tokenizer: Tokenizer) -> list[Example]:
    """Both sentences as one text."""
    made = []
    for row in rows:
        ids = tokenizer.encode(f"{row.first} {row.second}").ids
        ids = ids if len(ids) <= MAX_TOKENS else [*ids[: MAX_TOKENS - 1], ids[-1]]
        made.append(Example(ids, len(ids), 1))
    return made


def next_examples(rows: Sequence[Following], tokenizer: Tokenizer, *, wrong: str) -> list[Example]:
    """Every other row with its next sentence, the rest with one that is ``near`` or ``far``."""
    cls, sep = (special(tokenizer, name) for name in ("[CLS]", "[SEP]"))
    made = []
    for number, row in enumerate(rows):
        follows = number % 2
        second = row.second if follows else {"near": row.near, "far": row.far}[wrong]
        room = MAX_TOKENS // 2
        a, b = (
            tokenizer.encode(text, add_special_tokens=False).ids[:room]
            for text in (row.first, second)
        )
        made.append(Example([cls, *a, sep, *b, sep], len(a) + 2, follows))
    return made


def masked_losses(
    module: MaskedReader, *, mask_id: int, extra: bool
) -> Callable[[Sequence[Example]], Mapping[str, Tensor]]:
    """The loss over all tokens; ``extra`` adds that over the masked and replaced ones."""
    generator = torch.Generator().manual_seed(0)

    def of(batch: Sequence[Example]) -> Mapping[str, Tensor]:
        ids, seen, masked = _masked(batch, module, mask_id=mask_id, generator=generator)
        chosen = masked.chosen if extra else torch.zeros_like(masked.chosen)
        states = module(masked.ids, (seen & ~masked.hidden).long())
        cost = objectives.masked_language_model(
            states, module.embedding, targets=ids, attended=seen, chosen=chosen
        )
        return {"masked": cost}

    return of


def next_losses(module: NextSentence) -> Callable[[Sequence[Example]], Mapping[str, Tensor]]:
    """The loss of a batch."""

    def of(batch: Sequence[Example]) -> Mapping[str, Tensor]:
        (follows,) = device.beside(module, [torch.tensor([one.follows for one in batch])])
        return {"next": objectives.next_sentence(module(batch), module.layer, follows)}

    return of


@torch.inference_mode()
def recovered(
    module: MaskedReader, examples: Sequence[Example], *, mask_id: int
) -> dict[str, float]:
    """Percent of the masked, the replaced and the untouched tokens that are told.

    Each with the ends of its 95 % bootstrap interval, KIND/low and KIND/high: texts are drawn.
    """
    generator = torch.Generator().manual_seed(1)
    right, count = (defaultdict[str, list[int]](list) for _ in range(2))
    for start in range(0, len(examples), _BATCH):
        batch = examples[start : start + _BATCH]
        ids, seen, masked = _masked(batch, module, mask_id=mask_id, generator=generator)
        states = module(masked.ids, (seen & ~masked.hidden).long())
        words = seen & (ids != batch[0].ids[-1])  # [SEP] is told by its place
        words[:, 0] = False
        kinds = {
            "masked": masked.hidden & words,
            "replaced": masked.chosen & ~masked.hidden & words,
            "kept": words & ~masked.chosen,
        }
        for kind, where in kinds.items():
            said = torch.zeros_like(ids)
            said[where] = (states[where] @ module.embedding.t()).argmax(-1)
            right[kind] += ((said == ids) & where).sum(-1).tolist()
            count[kind] += where.sum(-1).tolist()
    found: dict[str, float] = {}
    for kind in count:
        found |= _share(np.array(right[kind]), np.array(count[kind]), name=kind)
    return found


def _share(right: NDArray[np.int64], count: NDArray[np.int64], *, name: str) -> Figures:
    """Return the percentage of all tokens that are right, with the interval over their texts."""
    share = bootstrap(lambda at: 100 * float(right[at].sum() / count[at].sum()), len(count))
    return ends(name, share)


def usual(shown: Sequence[Example], asked: Sequence[Example]) -> float:
    """Percent of the asked tokens that are the one that is most frequent in what was shown."""
    tokens, others = (
        Counter(token for one in rows for token in one.ids[1:-1]) for rows in (shown, asked)
    )
    return 100 * others[tokens.most_common(1)[0][0]] / others.total()


@torch.inference_mode()
def accuracy(module: NextSentence, examples: Sequence[Example]) -> float:
    """In percent."""
    right = 0
    for start in range(0, len(examples), _BATCH):
        batch = examples[start : start + _BATCH]
        said = module.layer(module(batch)).argmax(-1)
        right += int((said == torch.tensor([one.follows for one in batch])).sum())
    return 100 * right / len(examples)


def _masked(
    batch: Sequence[Example], module: nn.Module, *, mask_id: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, objectives.Masked]:
    """True ids, where a token stands, and the ids as the encoder gets them."""
    ids, mask = encoder.padded([one.ids for one in batch])
    vocab = int(module.bert.config.vocab_size)  # type: ignore[union-attr,arg-type]
    masked = objectives.mask_tokens(ids, mask, mask_id=mask_id, vocab=vocab, generator=generator)
    ids, seen = device.beside(module, (ids, mask.bool()))
    return ids, seen, device.batch_beside(module, masked)


def _last_layer(bert: BertModel) -> BertModel:
    """A copy of which the last layer alone is trained."""
    torch.manual_seed(0)
    own = copy.deepcopy(bert)
    own.encoder.layer[-1].requires_grad_(requires_grad=True)
    return own


def _trained(task: Task) -> Spent:
    return steps.train(steps.one_task(task), rates=RATES, seed=0, title=task.name)


def section(found: Mapping[str, StudyResult]) -> str:
    """The tables; empty where the study was not done."""
    if (part := found.get(STUDY)) is None:
        return ""
    f = part.figures
    lines = [
        "### BERT's objectives",
        "",
        wrapped(
            "What the encoder's last layer and a head learn of them in one epoch of "
            f"{f['shown']:,.0f} pairs of sentences of prose, {part.minutes:.0f} minutes for the "
            f"four trainings; told of {f['reported']:,.0f} pairs of held-out documents, one seed, "
            "nothing chosen on them. 15 % of the tokens are masked and 15 % replaced by any; the "
            "extra loss (Decodable Sentence-BERT, eq. 12) counts these twice over. Of the held-out "
            f"tokens {f['masked_usual']:.1f} % are the most frequent one of those trained on."
        ),
        "",
        "| masked language model: tokens told, % | masked | replaced | untouched |",
        "|---|---:|---:|---:|",
    ]
    for name, title in (("plain", "loss over all tokens"), ("extra", "with the extra loss")):
        cells = (
            with_interval(f, f"masked_{name}_{kind}") for kind in ("masked", "replaced", "kept")
        )
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += [
        "",
        wrapped(
            "The encoder was made for vectors of whole texts, and minutes teach it little of this. "
            "Brackets are 95 % intervals, above by bootstrap over texts, below by the normal "
            "approximation."
        ),
        "",
        "| next sentence or not: accuracy, % (a guess: 50) | |",
        "|---|---:|",
        f"| where it is not, it is of another document | {_told(f, 'next_far')} |",
        f"| where it is not, it is of the same paragraph | {_told(f, 'next_near')} |",
    ]
    return "\n".join(lines)


def _told(figures: Mapping[str, float], name: str) -> str:
    """A share of the reported pairs with its interval, in percent."""
    value = figures[name]
    margin = 1.96 * math.sqrt(value * (100 - value) / figures["reported"])
    return f"{value:.1f} [{value - margin:.1f}, {value + margin:.1f}]"
