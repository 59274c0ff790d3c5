"""Jobs that ask heads: classify, answer, score, rerank, and the list of heads itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, field_validator, model_validator

from verso_core.heads import Head, Portion, Reads, SignalName, Task, TextUnit
from verso_core.jobs.filters import Filter
from verso_core.jobs.models import (
    READ_COST,
    WINDOW_COST,
    Item,
    ItemError,
    ItemResult,
    Moment,
    Name,
    OpenModel,
    Params,
    RecordText,
    StrictModel,
    Text,
    given,
    needs,
    one_of,
)
from verso_core.registry import Channel
from verso_core.texts import MAX_SENTENCES, Metadata, utf16_units

MAX_PAIRS = 2048
MAX_CONTEXTS = 256
MAX_CONTEXT_BYTES = 256 * 1024
"""Most bytes of the contexts of one question: about 250 windows, some seconds of two cores."""
_ACCEPTED = re.compile(r"^\| ≤ ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) % \|$", re.MULTILINE)
_Words = Annotated[str, Field(json_schema_extra={"pattern": "\\S"})]
_Heads = Annotated[
    list[Name], Field(json_schema_extra={"minItems": 1, "maxItems": 8, "uniqueItems": True})
]
_TextObject = Annotated[
    dict[str, Any],
    Field(json_schema_extra={"required": ["text"], "properties": {"text": {"type": "string"}}}),
]


class ClassifyRequest(StrictModel):
    """Body of ``POST /v1/classify``: texts, or stored documents and records."""

    model_config = ConfigDict(json_schema_extra=one_of("texts", "ids"))

    head: Name | _Heads = Field(description="a head, or several", examples=["intents"])
    texts: list[str] | None = Field(default=None, min_length=1, max_length=MAX_PAIRS)
    collection: Name = "default"
    ids: list[str] | None = Field(default=None, min_length=1, max_length=MAX_PAIRS)
    top_k: int = Field(default=3, ge=1, le=1000)
    signals: bool = Field(default=False, description="give every confidence signal")
    chunk: Portion | None = Field(
        default=None,
        description="which chunks of a long text or document are read: the first, the last, or all "
        "by the mean of their logits; default: what the head says",
    )
    accept_error: float | None = Field(
        default=None, gt=0, lt=1, description="withhold labels so that at most this share is wrong"
    )

    @model_validator(mode="after")
    def _one_source(self) -> ClassifyRequest:
        if (self.texts is None) == (self.ids is None):
            raise ValueError("expected exactly one of texts and ids")
        if isinstance(self.head, list) and not 1 <= len(set(self.head)) == len(self.head) <= 8:
            raise ValueError("expected 1..8 heads, all different")
        return self

    @property
    def heads(self) -> list[str]:
        """Return the names of the heads."""
        return [self.head] if isinstance(self.head, str) else list(self.head)

    def params(self) -> ClassifyParams:
        """Return the params of the request's slices."""
        return ClassifyParams(
            heads=tuple(self.heads),
            collection=None if self.ids is None else self.collection,
            top_k=self.top_k,
            signals=self.signals,
            accept_error=self.accept_error,
            chunk=self.chunk,
        )


class FeedbackRequest(StrictModel):
    """Body of ``POST /v1/feedback``: the right labels of texts, or of stored documents."""

    model_config = ConfigDict(json_schema_extra=one_of("texts", "ids"))

    head: Name = Field(description="a head that classifies", examples=["log-failures"])
    texts: list[str] | None = Field(default=None, min_length=1, max_length=MAX_PAIRS)
    collection: Name = "default"
    ids: list[str] | None = Field(default=None, min_length=1, max_length=MAX_PAIRS)
    labels: list[str] = Field(
        min_length=1, max_length=MAX_PAIRS, description="the right label of each, in order"
    )

    @model_validator(mode="after")
    def _one_each(self) -> FeedbackRequest:
        if (self.texts is None) == (self.ids is None):
            raise ValueError("expected exactly one of texts and ids")
        given = len(self.texts if self.texts is not None else self.ids or [])
        if given != len(self.labels):
            raise ValueError(f"expected as many labels as texts or ids, got {len(self.labels)}")
        return self

    def params(self) -> FeedbackParams:
        """Return the params of the request's slices."""
        collection = None if self.ids is None else self.collection
        return FeedbackParams(head=self.head, collection=collection)


class AnswerRequest(StrictModel):
    """Body of ``POST /v1/answer``: a question, and contexts or the collection to find them in."""

    model_config = ConfigDict(
        json_schema_extra=one_of("context", "contexts", "collection")
        | needs("filter", "collection")
    )

    question: _Words = Field(min_length=1, examples=["which disk is full"])
    context: _Words | None = None
    contexts: list[_Words] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_CONTEXTS,
        description=f"at most {MAX_CONTEXT_BYTES} bytes together",
    )
    collection: Name | None = None
    limit: int = Field(default=5, ge=1, le=100, description="records read of a collection")
    top_k: int = Field(default=3, ge=1, le=50, description="answers to give")
    filter: Filter | None = None
    head: Name = "qa"
    stream: bool = Field(
        default=False, description="answer with server-sent events, as Accept may ask for, too"
    )

    @field_validator("context", "contexts")
    @classmethod
    def _readable(cls, value: str | list[str] | None) -> str | list[str] | None:
        texts = [value] if isinstance(value, str) else value or []
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
        if size > MAX_CONTEXT_BYTES:
            raise ValueError(
                f"expected <= {MAX_CONTEXT_BYTES} bytes of contexts, got {size}: ingest them into "
                "a collection and ask that"
            )
        return value

    @model_validator(mode="after")
    def _one_source(self) -> AnswerRequest:
        names = ("context", "contexts", "collection")
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected exactly one of {', '.join(names)}; got {given or 'none'}")
        if not self.question.strip():
            raise ValueError("expected a question, got white space")
        if any(not text.strip() for text in self.given_contexts):
            raise ValueError("expected contexts with words in them, got an empty one")
        if self.filter is not None and self.collection is None:
            raise ValueError("expected a collection where there is a filter")
        return self

    def params(self) -> AnswerParams:
        """Return the params of the request's slice."""
        return AnswerParams(**{name: getattr(self, name) for name in AnswerParams.model_fields})

    @property
    def given_contexts(self) -> list[str]:
        """Return the contexts of the request itself."""
        return [self.context] if self.context is not None else list(self.contexts or [])


class ScoreRequest(StrictModel):
    """Body of ``POST /v1/score``: pairs, or the common shape of two texts or lists of texts."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [given("pairs"), {"anyOf": [given("text_1"), given("text_2")]}],
            "allOf": [needs("text_1", "text_2"), needs("text_2", "text_1")],
        }
    )

    head: Name = Field(
        default="similarity",
        description="a head, or a task: similarity and duplicate (how alike two texts are, either "
        "way round), relevance (whether the second answers the first)",
    )
    pairs: list[tuple[str, str]] | None = Field(default=None, min_length=1, max_length=MAX_PAIRS)
    text_1: str | list[str] | None = None
    text_2: str | list[str] | None = None
    model: str | None = Field(default=None, description="taken and ignored: clients send it")

    @model_validator(mode="after")
    def _one_shape(self) -> ScoreRequest:
        common = self.text_1 is not None and self.text_2 is not None
        if (self.pairs is not None) == common or (self.text_1 is None) != (self.text_2 is None):
            raise ValueError("expected either pairs, or text_1 and text_2")
        first, second = _listed(self.text_1), _listed(self.text_2)
        if common and (not second or len(first) not in (1, len(second))):
            raise ValueError(
                f"expected one text_1 or as many as of text_2, got {len(first)} and {len(second)}"
            )
        if len(second) > MAX_PAIRS:
            raise ValueError(f"expected at most {MAX_PAIRS} pairs, got {len(second)}")
        return self

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Return the pairs of either shape."""
        if self.pairs is not None:
            return list(self.pairs)
        first, second = _listed(self.text_1), _listed(self.text_2)
        return list(zip(first * len(second) if len(first) == 1 else first, second, strict=True))


class RerankRequest(OpenModel):
    """Body of ``POST /v1/rerank``, as Jina's clients send it; other keys are taken and ignored."""

    query: str = Field(min_length=1)
    documents: list[str | _TextObject] = Field(min_length=1, max_length=MAX_PAIRS)
    top_n: int | None = Field(default=None, ge=1)
    return_documents: bool = True
    head: Name | None = Field(
        default=None, description="a head that scores pairs, or a task; default: relevance"
    )
    model: str | None = Field(
        default=None, description="in place of a head: verso, an alias of it, or a head's name"
    )

    @model_validator(mode="after")
    def _texts(self) -> RerankRequest:
        for index, document in enumerate(self.documents):
            if isinstance(document, dict) and not isinstance(document.get("text"), str):
                raise ValueError(f"documents/{index}: expected a string, or an object with text")
        return self

    @property
    def texts(self) -> list[str]:
        """Return the documents' texts."""
        return [one if isinstance(one, str) else str(one["text"]) for one in self.documents]


class ClassifyParams(Params):
    """Which heads classify the items of a slice, and how; ``collection`` of stored items."""

    heads: tuple[str, ...]
    collection: str | None = None
    top_k: int = 3
    signals: bool = False
    accept_error: float | None = None
    chunk: Portion | None = None

    def cost(self, item: Item) -> int:
        """Return the cost of a text that each head reads a window of, or of a stored one."""
        stored = READ_COST if self.collection is not None else 0
        return stored + min(super().cost(item), WINDOW_COST) * max(1, len(self.heads))


class FeedbackParams(Params):
    """Which head the labels of a slice's items are feedback on."""

    head: str
    collection: str | None = None

    def cost(self, item: Item) -> int:
        """Return the cost of classifying the item."""
        return ClassifyParams(heads=(self.head,), collection=self.collection).cost(item)


@dataclass(frozen=True, slots=True)
class FeedbackItem(Item):
    """A text, or a stored document or record by its name, and its right label."""

    BLOB: ClassVar = "text"

    id: str = ""
    chunk: int | None = None
    label: str = ""
    text: bytes | None = None


@dataclass(frozen=True, slots=True)
class ClassifyItem(Item):
    """A text, or a stored document or record by its name."""

    BLOB: ClassVar = "text"

    id: str = ""
    chunk: int | None = None
    text: bytes | None = None


class Label(OpenModel):
    """A label with its calibrated probability."""

    label: str
    score: float


class HeadResult(OpenModel):
    """Which version of a head executed a job."""

    head: str
    version: str
    channel: Channel = Channel.STABLE


class Classification(HeadResult):
    """The labels that a head predicts for a text; ``label`` is None if it was not sure enough."""

    label: str | None
    abstained: bool
    confidence: float = Field(default=0.0, description="probability that the best label is right")
    scores: tuple[Label, ...] = Field(default=(), description="best first")
    out_of_scope: bool | None = None
    shifted: bool | None = Field(
        default=None,
        description="whether the texts read together lie further from the head's training texts "
        "than those it was calibrated on; null of a head that cannot tell",
    )
    signals: dict[str, float | None] | None = Field(default=None, description="larger is surer")


class Classified(ItemResult):
    """One text, or one stored document or record."""

    id: str | None = None
    chunk: int | None = None
    heads: tuple[Classification, ...] = ()
    error: ItemError | None = None


class FeedbackTaken(HeadResult, ItemResult):
    """What a head says of an item that feedback was given on; it is counted from now on."""

    id: str | None = None
    chunk: int | None = None
    label: str = Field(description="the head's own, whether it would have been withheld or not")
    right: bool
    error: ItemError | None = None


class AnswerParams(Params):
    """Which head answers, from which collection, and how much is read.

    ``stream``: what is found is reported while the rest is read.
    """

    head: str
    collection: str | None = None
    limit: int = 5
    top_k: int = 3
    filter: Filter | None = None
    stream: bool = False

    def cost(self, item: Item) -> int:
        """Return the cost of the contexts, whose windows overlap by half."""
        found = 0 if self.collection is None else (READ_COST + WINDOW_COST) * self.limit
        return 2 * super().cost(item) + found


@dataclass(frozen=True, slots=True)
class AnswerItem(Item):
    """The question and the given contexts, concatenated; ``split``: their sizes in bytes."""

    BLOB: ClassVar = "texts"

    split: list[int]
    texts: bytes

    @classmethod
    def of(cls, texts: list[bytes]) -> AnswerItem:
        """Join the question and its contexts."""
        return cls([len(text) for text in texts], b"".join(texts))


class Place(OpenModel):
    """A part of a text: in bytes and, where the text is UTF-8, in code points and UTF-16 units.

    Python counts a string in code points, JavaScript and Java in code units of UTF-16.
    """

    start: int | None = None
    end: int | None = None
    start_byte: int
    end_byte: int
    start_utf16: int | None = None
    end_utf16: int | None = None

    @classmethod
    def of(cls, text: bytes, start: int, end: int) -> Place:
        """Return bytes [start, end) of a text as a place."""
        try:
            text.decode()
            before, part = text[:start].decode(), text[start:end].decode()
        except UnicodeDecodeError:
            return cls(start_byte=start, end_byte=end)
        first = utf16_units(before)
        return cls(
            start=len(before),
            end=len(before) + len(part),
            start_byte=start,
            end_byte=end,
            start_utf16=first,
            end_utf16=first + utf16_units(part),
        )


class AnswerPart(RecordText, Place):
    """A part of a text that may be the answer; offsets are into its context or record."""

    score: float
    null_score: float = Field(description="of 'there is no answer in this context'")
    confidence: float | None = Field(
        default=None, description="calibrated: the probability that it is right; null of some heads"
    )
    evidence: Place = Field(description="the sentence or line it stands in")
    context: int | None = Field(default=None, description="index of the given context")
    id: str | None = Field(default=None, description="of the record: document#chunk")
    document: str | None = None
    chunk: int | None = None
    search_score: float | None = None
    metadata: Metadata = Field(default_factory=dict)
    document_start_byte: int | None = None
    document_end_byte: int | None = None
    page: int | None = Field(
        default=None, description="of an ingested file: page, slide or sheet, counted from 1"
    )


class UnreadRecord(RecordText):
    """A record that a search found and that could not be read back."""

    id: str
    document: str
    chunk: int
    search_score: float
    error: ItemError


class Answered(HeadResult, ItemResult):
    """Answers to a question, best first; ``answered`` is false where "no answer" is the answer."""

    answered: bool = Field(description="the best part passes the head's threshold")
    null_threshold: float
    contexts: int = Field(description="how many were read")
    answers: tuple[AnswerPart, ...] = Field(description="best first")
    failed: tuple[UnreadRecord, ...] = Field(
        default=(), description="records that could not be read back"
    )


class AnswerHit(RecordText):
    """A record that was found and will be read."""

    id: str
    document: str
    chunk: int
    search_score: float
    metadata: Metadata = Field(default_factory=dict)


class AnswerHits(OpenModel):
    """What a question has found, best first; nothing where the request has the texts itself.

    They come again if another worker repeats the job; the later ones replace the earlier ones.
    """

    hits: tuple[AnswerHit, ...]


class AnswerSpans(OpenModel):
    """The best parts of the contexts that were read since the last event, best first.

    Whether one is the answer is known at the end. Offsets are into the context or record.
    """

    read: int = Field(description="contexts read so far")
    contexts: int = Field(description="that will be read")
    answers: tuple[AnswerPart, ...]


class AnswerResponse(Answered):
    """Answer of ``POST /v1/answer``."""

    job_id: str
    timings_ms: dict[str, float]


class AnswerEvent(OpenModel):
    """An event of an answer that is streamed, as the client yields it: one of the three."""

    hits: AnswerHits | None = None
    spans: AnswerSpans | None = None
    end: AnswerResponse | None = None


class ScoreParams(Params):
    """Which head scores; with ``sentences`` a second text counts by its best part."""

    head: str
    sentences: bool = False

    def cost(self, item: Item) -> int:
        """Return the cost of a pair: one window, or one for each sentence."""
        size = super().cost(item)
        return min(size, MAX_SENTENCES * WINDOW_COST if self.sentences else WINDOW_COST)


@dataclass(frozen=True, slots=True)
class ScoreItem(Item):
    """A pair of texts, concatenated; ``split``: bytes of the first."""

    BLOB: ClassVar = "texts"

    split: int
    texts: bytes

    @classmethod
    def of(cls, first: bytes, second: bytes) -> ScoreItem:
        """Join two texts."""
        return cls(len(first), first + second)

    @property
    def pair(self) -> tuple[bytes, bytes]:
        """Return the two texts."""
        return self.texts[: self.split], self.texts[self.split :]


class PairScore(HeadResult, ItemResult):
    """The score of one pair: larger if the two match better."""

    score: float
    evidence: Place | None = Field(
        default=None, description="with sentences: the part of the second text that counted"
    )
    tokens: int | None = Field(
        default=None, description="with sentences: of both texts, as far as they were read"
    )


class PairView(OpenModel):
    """The score of one pair."""

    index: int
    object: str = "score"
    score: float


class ScoreResponse(OpenModel):
    """Answer of ``POST /v1/score``."""

    job_id: str
    object: str = "list"
    model: str
    data: tuple[PairView, ...]
    timings_ms: dict[str, float]


class RankedDocument(OpenModel):
    """A document with its score."""

    index: int
    relevance_score: float
    document: dict[str, str] | None = None
    evidence: Place | None = Field(
        default=None,
        description="the sentence that counted, or the passage where the head reads passages",
    )


class RerankUsage(OpenModel):
    """Tokens of the query, once for each document, and of the documents."""

    prompt_tokens: int
    total_tokens: int


class RerankResponse(OpenModel):
    """Answer of ``POST /v1/rerank``, best first."""

    id: str
    object: str = "list"
    model: str
    usage: RerankUsage
    results: tuple[RankedDocument, ...]
    timings_ms: dict[str, float]


class HeadsParams(Params):
    """All heads; or, with ``report``, the report of the version that a channel serves."""

    report: str | None = None
    channel: Channel = Channel.STABLE


class HeadVersion(OpenModel):
    """A version of a head that a channel serves; only the error if it cannot be served."""

    version: str
    created: Moment | None = None
    task: Task | None = None
    reads: Reads | None = None
    space: str | None = None
    labels: tuple[str, ...] = ()
    none_label: str | None = Field(default=None, description="the label for what fits no other")
    chunk: Portion | None = Field(default=None, description="which chunks it reads by default")
    text_unit: TextUnit | None = Field(
        default=None, description="what of a text rerank has it score; default: sentence"
    )
    metrics: dict[str, float] = Field(default_factory=dict)
    accept_by: SignalName | None = None
    accept_errors: tuple[str, ...] = Field(
        default=(), description="error rates that accept_error may be bounded by"
    )
    data: tuple[str, ...] = ()
    licence: str | None = None
    error: ItemError | None = None


class HeadInfo(OpenModel):
    """A head and what its channels serve."""

    name: str
    share: float = Field(description="part of the jobs that a canary gets")
    stable: HeadVersion | None = None
    canary: HeadVersion | None = None


class HeadList(ItemResult):
    """All heads, by name."""

    heads: tuple[HeadInfo, ...]


class RiskCurve(OpenModel):
    """Risk against coverage by one signal."""

    signal: SignalName
    coverage: tuple[float, ...] = Field(description="share of the rows, the surest first")
    risk: tuple[float, ...] = Field(description="share of errors among them")


class AcceptedRows(OpenModel):
    """What an accepted error rate came to on the test rows, as shares."""

    asked: float = Field(description="error rate that was to be kept")
    coverage: float = Field(description="of the rows, accepted")
    risk: float = Field(description="of errors among those")


class ConfidenceBin(OpenModel):
    """Test rows whose confidence lies in one interval."""

    rows: int
    confidence: float = Field(description="their mean")
    accuracy: float = Field(description="share of them whose label is right")


class HeadFigures(OpenModel):
    """The figures of a head's report, measured on rows that it was not trained on."""

    rows: int | None = Field(default=None, description="measured on; null of heads that score")
    accuracy: float | None = None
    accept_by: SignalName | None = Field(default=None, description="what labels are accepted by")
    risk_coverage: tuple[RiskCurve, ...] = ()
    accepted: tuple[AcceptedRows, ...] = ()
    calibration: tuple[ConfidenceBin, ...] = Field(
        default=(), description="empty for a head that was trained before this was measured"
    )
    metrics: dict[str, float] = Field(default_factory=dict, description="all that was measured")

    @classmethod
    def of(cls, head: Head, card: str) -> HeadFigures:
        """Return the figures that ``head.json`` and the card hold."""
        metrics, classifies = head.metrics, head.task is Task.CLASSIFY
        accepted = [
            (rate / 100, one["coverage"], one["risk"])
            for rate, one in _numbered(metrics, "accepted_at_")
        ]
        return cls(
            rows=int(metrics["test_rows"]) if "test_rows" in metrics else None,
            accuracy=metrics.get("accuracy"),
            accept_by=head.calibration.accept_by if classifies else None,
            risk_coverage=tuple(_curves(metrics)),
            accepted=tuple(
                AcceptedRows(asked=asked, coverage=coverage, risk=risk)
                for asked, coverage, risk in accepted or _of_card(card)
            ),
            calibration=tuple(
                ConfidenceBin(
                    rows=int(one["rows"]), confidence=one["confidence"], accuracy=one["accuracy"]
                )
                for _, one in _numbered(metrics, "confidence_")
            ),
            metrics=dict(metrics),
        )


def _of_card(card: str) -> Iterator[tuple[float, float, float]]:
    """Yield the rows of accepted error rates in a card: earlier heads have them nowhere else."""
    for row in _ACCEPTED.finditer(card):
        asked, coverage, risk = (float(cell) / 100 for cell in row.groups())
        yield asked, coverage, risk


def _numbered(metrics: Mapping[str, float], prefix: str) -> list[tuple[float, dict[str, float]]]:
    """Return the metrics ``{prefix}{number}/{part}``, by number and part."""
    found: dict[float, dict[str, float]] = {}
    for name, value in metrics.items():
        number, slash, part = name.removeprefix(prefix).partition("/")
        if name.startswith(prefix) and slash:
            found.setdefault(float(number), {})[part] = value
    return sorted(found.items())


def _curves(metrics: Mapping[str, float]) -> Iterator[RiskCurve]:
    steps = _numbered(metrics, "risk_at_")
    for signal in SignalName:
        points = [(share / 100, by[signal]) for share, by in steps if signal in by]
        if points:
            coverage, risk = zip(*points, strict=True)
            yield RiskCurve(signal=signal, coverage=coverage, risk=risk)


class HeadReport(Text, ItemResult):
    """The report that a version of a head was published with; its text is Markdown."""

    head: str
    version: str
    figures: HeadFigures | None = None


class HeadReportView(OpenModel):
    """Answer of ``GET /v1/heads/{name}/report``."""

    head: str
    version: str
    report: str = Field(description="Markdown")
    figures: HeadFigures | None = None


def _listed(texts: str | list[str] | None) -> list[str]:
    if texts is None:
        return []
    return [texts] if isinstance(texts, str) else list(texts)
