"""A head: a small artifact that classifies, answers or scores with the encoder of a space.

    models/heads/NAME/VERSION/
      head.json     what this module describes
      head.onnx     the graph: the head's layers and, where it reads tokens, its LoRA matrices
      golden.jsonl  inputs, and the outputs that every machine must compute
      CARD.md       data and licence, figures, machine, command, date
      signals.npz   arrays of the confidence signals (optional)

A head changes nothing that is stored. It names the space of its encoder. Its version is the hash of
its settings and files, so the folder of a version never changes.

**Graph.** float32 and int64, dynamic batch B; C labels, D the space's width, F any width:

    ===========  ============================================  =================================
    reads        inputs                                        outputs
    ===========  ============================================  =================================
    vector       vector (B, D), unit length                    logits (B, C), optional feature
    vector_pair  u, v (B, D), unit length                      score (B,)
    tokens       input_ids, attention_mask (B, T)              logits (B, C), optional feature
    document     vectors (B, K, D), mask (B, K),               logits (B, C), optional feature
                 terms, weights (B, M)
    token_pair   input_ids, attention_mask,                    score (B,), or for answers
                 token_type_ids (B, T): [CLS] a [SEP] b [SEP]  start, end (B, T)
    ===========  ============================================  =================================

A graph that reads tokens holds no weight of the encoder: :attr:`Head.base_weights` maps each
missing initialiser to a tensor of the artifact's ``encoder.onnx``, so that any number of heads
share one encoder in memory. In the graph those initialisers are marked as external data at
``BASE_LOCATION``, a file that does not exist.

A graph that reads a **document** is given the vectors of its chunks in their order, and with
:attr:`Head.terms` its terms as hybrid collections store them: ids of words with the sum of their
weights over the chunks. The mask is 1 for a chunk; padding has weight 0. Of a document of more than
:attr:`Head.max_chunks` the first and the last half of them are read.

**Golden samples** are one JSON object a line, without the batch axis:
``{"inputs": {NAME: [...]}, "outputs": {NAME: number or [...]}}``; outputs may differ by
``GOLDEN_TOLERANCE``.

**Signals** are measures of confidence: larger means surer. With z the logits, T the temperature and
f the graph's ``feature`` (the vector itself if it has none):

    ==================  ========================================================================
    softmax             max softmax(z)
    calibrated          max softmax(z / T) (Guo et al. 2017)
    energy              logsumexp(z): the negative energy of Liu et al. 2020, eq. 4 at T = 1
    mahalanobis         M(f; mean, background_precision) - min over labels c of
                        M(f; class_means[c], precision), M(f; m, P) = (f - m)' P (f - m)
                        (relative Mahalanobis distance, Ren et al. 2021, eq. 3, negated)
    knn                 cosine between f and the k-th nearest row of references (Sun et al. 2022)
    inside              logsumexp of z over the labels in scope: the energy of those alone
    margin              inside - z of the label "out of scope"
    scope               sigmoid(bias + sum of weight * value over other signals): in scope or not
    self_generation     share of the text's tokens that are the decoder's top token, given the
                        vector and the true tokens before
    bits_given_vector   -bits(x | v) / bytes(x): the text's neural payload, negated
    bits_saved          (bits(x | no vector) - bits(x | v)) / bytes(x)
    stack               sigmoid(bias + sum of weight * value over other signals)
    ==================  ========================================================================

A best label is replaced by ``none_label`` where the signal ``scope`` is below the head's threshold.

Of a head that answers there is one, ``calibrated``: score - null score, from which its scale and
offset make the probability that the best answer is right, that is, that its word F1 against a right
one is 0.5 or more (SQuAD's measure). A ``relevance`` corrects the null score first.

``signals.npz`` holds, for those that need them: ``class_means`` (C, F), ``mean`` (F,),
``precision`` and ``background_precision`` (F, F), floating; ``references`` (N, F) int8, unit rows
times 127; ``k`` (), int64.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from verso_core.errors import HeadInvalid
from verso_core.manifest import File, intact, read_file, write_sealed

HEAD_NAME = "head.json"
FORMAT = 1
GRAPH = "head.onnx"
GOLDEN = "golden.jsonl"
SIGNALS = "signals.npz"
CARD = "CARD.md"
FILES = (GRAPH, GOLDEN, CARD)
OTHER_FILES = (SIGNALS,)
BASE_LOCATION = "encoder.onnx"
"""Location of the external data that a graph names for the encoder's weights."""
GOLDEN_TOLERANCE = 1e-3
GOLDEN_LINES = 8
"""Fewest golden samples of a head."""

T = TypeVar("T")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Task(StrEnum):
    """What a head does."""

    CLASSIFY = "classify"
    ANSWER = "answer"
    SCORE = "score"


class Reads(StrEnum):
    """What a head's graph reads."""

    VECTOR = "vector"
    VECTOR_PAIR = "vector_pair"
    TOKENS = "tokens"
    TOKEN_PAIR = "token_pair"  # noqa: S105 - not a password
    DOCUMENT = "document"

    @property
    def tokens(self) -> bool:
        """Whether the graph runs the encoder and so needs its weights."""
        return self in (Reads.TOKENS, Reads.TOKEN_PAIR)


class Portion(StrEnum):
    """Which chunks of a text are classified: one of them, or all by the mean of their logits."""

    FIRST = "first"
    LAST = "last"
    MEAN = "mean"

    def chosen(self, chunks: Sequence[T]) -> Sequence[T]:
        """Return those of a text's chunks that are classified."""
        parts = {Portion.FIRST: slice(1), Portion.LAST: slice(-1, None), Portion.MEAN: slice(None)}
        return chunks[parts[self]]


class TextUnit(StrEnum):
    """What of a text a head that scores was trained to read."""

    SENTENCE = "sentence"
    PASSAGE = "passage"


def source_of(label: str) -> str:
    """Return the source that a label names: the word before its slash, or "" without one."""
    source, slash, _ = label.partition("/")
    return source if slash else ""


@dataclass(frozen=True, slots=True)
class Judged:
    """A label that a head gave and a person checked: what its calibration learns from.

    Attributes:
        source: of the label, see :func:`source_of`.
        value: of the signal that the head accepts by.
        right: whether the label was right.
    """

    source: str
    value: float
    right: bool


class SignalName(StrEnum):
    """A measure of a head's confidence; see the module's table."""

    SOFTMAX = "softmax"
    CALIBRATED = "calibrated"
    ENERGY = "energy"
    MAHALANOBIS = "mahalanobis"
    KNN = "knn"
    INSIDE = "inside"
    MARGIN = "margin"
    SCOPE = "scope"
    SELF_GENERATION = "self_generation"
    BITS_GIVEN_VECTOR = "bits_given_vector"
    BITS_SAVED = "bits_saved"
    STACK = "stack"


READS: dict[Task, tuple[Reads, ...]] = {
    Task.CLASSIFY: (Reads.VECTOR, Reads.TOKENS, Reads.DOCUMENT),
    Task.ANSWER: (Reads.TOKEN_PAIR,),
    Task.SCORE: (Reads.VECTOR_PAIR, Reads.TOKEN_PAIR),
}
"""What a head of each task may read."""


class Signal(_Model):
    """Maps the value x of a signal to a probability of being right: sigmoid(scale * x + offset)."""

    scale: FiniteFloat
    offset: FiniteFloat


class Stack(_Model):
    """A logistic regression on other signals, fitted on held-out errors."""

    bias: FiniteFloat
    weights: dict[SignalName, FiniteFloat] = Field(min_length=1)


class Scope(_Model):
    """When a text is out of scope: its signal ``scope`` is below ``least``."""

    stack: Stack = Field(description="of the signal scope")
    least: FiniteFloat


class Source(_Model):
    """The calibration of labels of one source: those with the same word before a slash.

    Rows of one source drift apart from those of another, so each has thresholds of its own (a
    Mondrian conformal predictor, Vovk et al. 2005, section 4.5).
    """

    signal: Signal = Field(description="maps accept_by to the probability of being right")
    conformal: dict[str, FiniteFloat] = Field(
        default_factory=dict, description="as of the calibration; no rate: nothing is accepted"
    )


class Relevance(_Model):
    """How likely a context answers a question, by the sentence of its best answer.

    ``weight * (cosine - usual)`` is taken off the context's null score. The cosine is that of the
    question's vector and the sentence's.
    """

    weight: FiniteFloat = Field(gt=0)
    usual: FiniteFloat = Field(description="the mean cosine of the questions it was fitted on")

    def corrected(self, null_score: float, cosine: float) -> float:
        """Return the null score of a context whose best sentence has this cosine."""
        return null_score - self.weight * (cosine - self.usual)


class Calibration(_Model):
    """How a head's outputs become decisions, fitted on data that the head was not trained on."""

    temperature: FiniteFloat = Field(default=1.0, gt=0)
    signals: dict[SignalName, Signal] = Field(default_factory=dict)
    stack: Stack | None = None
    accept_by: SignalName = Field(
        default=SignalName.CALIBRATED, description="the signal that the thresholds are on"
    )
    conformal: dict[str, FiniteFloat] = Field(
        default_factory=dict,
        description="error rate among what is accepted, as a string -> least value of accept_by",
    )
    null_threshold: FiniteFloat | None = Field(
        default=None, description="an answer is given where its score - null score is above this"
    )
    found_null_threshold: FiniteFloat | None = Field(
        default=None, description="the same of records that a search found; None: null_threshold"
    )
    relevance: Relevance | None = Field(
        default=None, description="corrects the null score of a context, where answers are read"
    )
    scope: Scope | None = None
    sources: dict[str, Source] = Field(
        default_factory=dict, description="by the word before the slash of the best label"
    )
    source_limits: dict[str, Annotated[FiniteFloat, Field(gt=0, le=1)]] = Field(
        default_factory=dict,
        description="source -> least probability of it, the sum of softmax(z / T) over its labels, "
        "at which these are accepted where an error rate is asked for; no source: no limit",
    )
    usual: tuple[FiniteFloat, ...] = Field(
        default=(), description="quantiles of knn over the calibration rows, in equal steps, from 0"
    )

    @model_validator(mode="after")
    def _rates(self) -> Calibration:
        for rate in {*self.conformal, *(r for one in self.sources.values() for r in one.conformal)}:
            try:
                good = 0 < float(rate) < 1
            except ValueError:
                good = False
            if not good:
                raise ValueError(f"conformal: expected an error rate in (0, 1), got {rate!r}")
        if self.stack is not None and SignalName.STACK in self.stack.weights:
            raise ValueError("stack: expected signals other than stack")
        if self.scope is not None and SignalName.SCOPE in self.scope.stack.weights:
            raise ValueError("scope: expected signals other than scope")
        return self


class WidenedWeight(_Model):
    """A weight stored as int8 codes and a scale for each output channel: codes * scale."""

    codes: str
    scale: str


class PlainWeight(_Model):
    """A weight stored as floats (float16 is widened)."""

    tensor: str


class Lineage(_Model):
    """How a head was made."""

    data_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    data: tuple[str, ...] = Field(description="names of the data sets")
    licence: str
    recipe: dict[str, Any]
    base_artifact: str = Field(description="id of the artifact whose encoder was read")
    command: str
    machine: str
    created: datetime


Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]


class Head(_Model):
    """The content of ``head.json``."""

    format: int = FORMAT
    name: Name
    version: str = Field(default="", description="first 16 hex digits of the hash; see version_of")
    created: datetime
    task: Task
    reads: Reads
    space: str = Field(description="id of the space whose vectors or encoder it reads")
    labels: tuple[str, ...] = Field(default=(), description="in the order of the logits")
    none_label: str | None = Field(default=None, description="the label that means: out of scope")
    max_tokens: int | None = Field(
        default=None, gt=2, description="longest input, special tokens in"
    )
    stride: int | None = Field(default=None, gt=0, description="tokens two windows share")
    chunk: Portion | None = Field(
        default=None, description="which chunks a classifier reads where a request does not say"
    )
    text_unit: TextUnit | None = Field(
        default=None,
        description="what of each text rerank has a head score: its best sentence, also where this "
        "is not said, or its best passage",
    )
    max_chunks: int | None = Field(
        default=None, gt=1, description="most chunks of a document that are read"
    )
    terms: bool = Field(default=False, description="whether the terms of a document are read")
    calibration: Calibration = Field(default_factory=Calibration)
    metrics: dict[str, FiniteFloat] = Field(default_factory=dict)
    lineage: Lineage
    base_weights: dict[str, WidenedWeight | PlainWeight] = Field(
        default_factory=dict, description="initialiser of head.onnx -> tensor of encoder.onnx"
    )
    digest: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{64}$", description="the file's seal; older ones have none"
    )
    files: dict[str, File]

    @model_validator(mode="after")
    def _fits(self) -> Head:
        if self.reads not in READS[self.task]:
            raise ValueError(f"expected a head for {self.task} to read {_list(READS[self.task])}")
        if self.task is Task.CLASSIFY:
            if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
                raise ValueError("expected two or more labels, all different")
        elif self.labels:
            raise ValueError(f"expected no labels for {self.task}, got {len(self.labels)}")
        if self.none_label is not None and self.none_label not in self.labels:
            raise ValueError(f"expected none_label among the labels, got {self.none_label!r}")
        return self

    @model_validator(mode="after")
    def _settings_fit(self) -> Head:
        if self.reads.tokens != (self.max_tokens is not None):
            raise ValueError("expected max_tokens where tokens are read, and only there")
        if (self.task is Task.ANSWER) != (self.stride is not None):
            raise ValueError("expected stride where answers are read, and only there")
        if self.chunk is not None and self.task is not Task.CLASSIFY:
            raise ValueError(f"expected no chunk for {self.task}, got {self.chunk}")
        if self.text_unit is not None and self.task is not Task.SCORE:
            raise ValueError(f"expected no text_unit for {self.task}, got {self.text_unit}")
        if self.base_weights and not self.reads.tokens:
            raise ValueError("expected base_weights only where tokens are read")
        if (self.reads is Reads.DOCUMENT) != (self.max_chunks is not None):
            raise ValueError("expected max_chunks where documents are read, and only there")
        if self.terms and self.reads is not Reads.DOCUMENT:
            raise ValueError("expected terms only where documents are read")
        if self.calibration.relevance is not None and self.task is not Task.ANSWER:
            raise ValueError("expected a relevance only where answers are read")
        if self.calibration.scope is not None and self.none_label is None:
            raise ValueError("expected none_label of a head with a calibration of scope")
        if unknown := self.calibration.source_limits.keys() - set(map(source_of, self.labels)):
            raise ValueError(f"source_limits: expected sources of labels, got {_list(unknown)}")
        return self


_LATER = ("chunk", "text_unit", "max_chunks", "terms")
_LATER_CALIBRATION = (
    *("found_null_threshold", "relevance", "scope", "source_limits", "sources", "usual"),
)
"""Fields that heads of earlier versions do not have."""


@dataclass(frozen=True, slots=True)
class LoadedHead:
    """A verified head in memory: its description and the bytes whose hashes were checked."""

    folder: Path
    head: Head
    data: Mapping[str, bytes]


def load(folder: Path) -> LoadedHead:
    """Read a head and verify the hash of every file.

    Raises:
        HeadInvalid: a file is missing or altered, or ``head.json`` is invalid (:func:`read`).
    """
    head = read(folder)
    data = {
        name: read_file(folder / name, expected=file, invalid=HeadInvalid)
        for name, file in head.files.items()
    }
    return LoadedHead(folder=folder, head=head, data=data)


def read(folder: Path) -> Head:
    """Read ``head.json`` alone.

    Raises:
        HeadInvalid: it is malformed, altered, of another format, lists other files than heads have,
            or its version does not follow from its content.
    """
    path = folder / HEAD_NAME
    try:
        written = path.read_bytes()
        head = Head.model_validate_json(written)
    except OSError as exc:
        raise HeadInvalid(f"expected {path}, got {exc.strerror}") from exc
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(map(str, first["loc"])) or "head"
        raise HeadInvalid(f"{HEAD_NAME}: {where}: {first['msg']}") from exc
    if not intact(written, head.digest):
        raise HeadInvalid(f"{HEAD_NAME} was altered: it does not agree with its digest")
    if head.format != FORMAT:
        raise HeadInvalid(f"expected head format {FORMAT}, got {head.format}")
    if missing := set(FILES) - head.files.keys():
        raise HeadInvalid(f"{HEAD_NAME} does not list {_list(missing)}")
    if unknown := head.files.keys() - {*FILES, *OTHER_FILES}:
        raise HeadInvalid(f"{HEAD_NAME}: expected no file {_list(unknown)}")
    if head.version != (found := version_of(head)):
        raise HeadInvalid(f"expected version {found} by the content, got {head.version!r}")
    return head


def version_of(head: Head) -> str:
    """Return the version of a head: the hash of its settings and files. Shape: 16 hex digits.

    It covers all of ``head.json`` but the version itself, the digest and ``created``, and fields
    that were added later only if they are set: heads made before keep their versions.
    """
    known = head.model_dump(mode="json", exclude={"version", "digest", "created"})
    for where, names in ((known, _LATER), (known["calibration"], _LATER_CALIBRATION)):
        for name in names:
            if not where[name] and not isinstance(where[name], float):
                del where[name]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]


def named(head: Head) -> Head:
    """Return the head, not sealed yet, with the version of its content."""
    return head.model_copy(update={"version": version_of(head), "digest": None})


def write(head: Head, folder: Path) -> None:
    """Write a sealed ``head.json``."""
    write_sealed(head, folder / HEAD_NAME)


def _list(names: set[str] | tuple[str, ...]) -> str:
    return ", ".join(sorted(names))
