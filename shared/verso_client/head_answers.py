"""What heads answer, as typed values."""

from __future__ import annotations

from pydantic import Field

from verso_client.answers import Answer, ItemError, Text
from verso_core.texts import Scalar


class Label(Answer):
    """A label with its calibrated probability."""

    label: str
    score: float


class Classification(Answer):
    """What one head makes of a text: ``label`` is None where it was not sure enough."""

    head: str
    version: str
    label: str | None
    abstained: bool
    confidence: float = Field(description="probability that the best label is right")
    scores: tuple[Label, ...] = Field(description="best first")
    out_of_scope: bool | None = None
    signals: dict[str, float | None] | None = Field(default=None, description="larger is surer")


class Classified(Answer):
    """One text, or one stored document or record."""

    id: str | None = None
    chunk: int | None = None
    heads: tuple[Classification, ...] = ()
    error: ItemError | None = None


class Place(Answer):
    """A part of a text: in bytes and, where the text is UTF-8, in characters."""

    start: int | None = None
    end: int | None = None
    start_byte: int
    end_byte: int


class AnswerPart(Text, Place):
    """A part of a text that may be the answer; offsets are into its context or record."""

    score: float
    null_score: float = Field(description="of: there is no answer in this text")
    evidence: Place
    context: int | None = None
    id: str | None = Field(default=None, description="of the record: document#chunk")
    document: str | None = None
    search_score: float | None = None
    metadata: dict[str, Scalar] = Field(default_factory=dict)
    document_start_byte: int | None = None
    document_end_byte: int | None = None


class Answered(Answer):
    """Answers to a question, best first; ``answered`` is false where "no answer" is the answer."""

    head: str
    version: str
    answered: bool
    null_threshold: float
    contexts: int
    answers: tuple[AnswerPart, ...]


class RankedDocument(Answer):
    """A document with its score."""

    index: int
    relevance_score: float


class HeadVersion(Answer):
    """A version of a head; of one that cannot be served only its error."""

    version: str
    task: str | None = None
    reads: str | None = None
    space: str | None = None
    labels: tuple[str, ...] = ()
    none_label: str | None = None
    chunk: str | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    accept_errors: tuple[str, ...] = ()
    licence: str | None = None
    error: ItemError | None = None


class HeadInfo(Answer):
    """A head and what its channels serve."""

    name: str
    share: float
    stable: HeadVersion | None = None
    canary: HeadVersion | None = None
