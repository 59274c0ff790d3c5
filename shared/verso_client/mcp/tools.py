"""The tools: what each takes, what it answers, and which call of the client it is.

Answers are models of :mod:`verso_core.jobs`, and so are their schemas. Arguments are a choice of
the fields of a request: schemas without ``oneOf`` at the top, which some hosts of agents refuse,
and with bounds that suit a reader who pays for each word.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from verso_client.async_client import AsyncClient
from verso_core.jobs import Filter, SearchMode
from verso_core.jobs.heads.answer import Answered
from verso_core.jobs.heads.classify import Classified
from verso_core.jobs.logs.lines import (
    MAX_AROUND,
    MAX_CURSOR,
    LineOrder,
    LineRow,
    LinesRequest,
    LineTime,
    Waiting,
)
from verso_core.jobs.logs.views import STATEMENT_ID, StatementsAnswer, StatementsRequest
from verso_core.jobs.models import MissingPartitions, Name, OpenModel, StrictModel
from verso_core.jobs.reconstruct import StoredText
from verso_core.jobs.search import Found

MAX_TEXTS = 64
"""Most texts or documents of one ``classify``."""
LINES_BYTES = 2 << 20
"""About as many bytes of rows are in one answer of ``logs_query``, which goes on at its cursor."""
_FIRST_LINES = 100
"""Lines, those around others too, that are asked for before it is known how long they are."""

_Collection = Annotated[Name, Field(description="name of the collection")]
_Logs = Annotated[Name, Field(description="name of a collection of kind logs")]
_From = Annotated[LineTime, Field(alias="from", description="the first time, inclusive")]
_To = Annotated[LineTime, Field(description="the last time, exclusive")]
_Filter = Annotated[
    Filter | None,
    Field(description='such as {"field": "host", "eq": "a"}; joined by "and", "or", "not"'),
]
_Lines = Annotated[Filter | None, Field(description="of labels, attributes, time and id")]


class SearchArguments(StrictModel):
    """What ``search`` takes."""

    query: str = Field(min_length=1, description="what the texts are about, in any words")
    collection: _Collection = "default"
    limit: int = Field(default=10, ge=1, le=100)
    mode: SearchMode | None = Field(
        default=None, description="what is compared: vectors, words or both; default: as it is made"
    )
    filter: _Filter = None
    rerank: Name | None = Field(
        default=None, description="a head that scores pairs and orders the hits again"
    )


class FetchArguments(StrictModel):
    """What ``fetch`` takes."""

    id: str = Field(min_length=1, description="of a document, or of a record: document#n")
    collection: _Collection = "default"


class AnswerArguments(StrictModel):
    """What ``answer`` takes."""

    question: str = Field(min_length=1, pattern=r"\S")
    collection: _Collection = "default"
    filter: _Filter = None
    limit: int = Field(default=5, ge=1, le=100, description="records that are read")
    top_k: int = Field(default=3, ge=1, le=50, description="answers to give")
    head: Name = "qa"


class ClassifyArguments(StrictModel):
    """What ``classify`` takes: texts, or ids of stored documents."""

    head: Name = Field(description="of heads that classify", examples=["intents"])
    texts: list[str] | None = Field(default=None, min_length=1, max_length=MAX_TEXTS)
    ids: list[str] | None = Field(
        default=None, min_length=1, max_length=MAX_TEXTS, description="in place of texts"
    )
    collection: _Collection = "default"
    top_k: int = Field(default=3, ge=1, le=100, description="labels of each")
    accept_error: float | None = Field(
        default=None, gt=0, lt=1, description="withhold labels so that at most this share is wrong"
    )


class LinesArguments(StrictModel):
    """What ``logs_query`` takes."""

    collection: _Logs = "logs"
    from_: _From = None
    to: _To = None
    filter: _Lines = None
    contains: str | None = Field(default=None, max_length=4096, description="part of the line")
    question: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="the lines nearest to it come first",
    )
    statement: str | None = Field(
        default=None, pattern=STATEMENT_ID, description="id of log_statements: only its lines"
    )
    order: LineOrder = LineOrder.NEWEST
    before: int = Field(default=0, ge=0, le=MAX_AROUND, description="lines to show before each")
    after: int = Field(default=0, ge=0, le=MAX_AROUND, description="and behind it")
    limit: int = Field(default=50, ge=1, le=1000)
    cursor: str | None = Field(
        default=None, max_length=MAX_CURSOR, description="next_cursor of the last answer"
    )


class StatementsArguments(StrictModel):
    """What ``log_statements`` takes."""

    collection: _Logs = "logs"
    from_: _From = None
    to: _To = None
    filter: _Lines = None
    new_since: LineTime = Field(
        default=None, description="only statements none of whose lines is earlier"
    )
    limit: int = Field(default=50, ge=1, le=1000)


class ClassifiedTexts(OpenModel):
    """The labels of each text or document, in their order."""

    results: tuple[Classified, ...]


class LinesFound(OpenModel):
    """Lines in order, and where the list goes on."""

    lines: tuple[LineRow, ...]
    next_cursor: str | None = Field(default=None, description="null: there are no more")
    waiting: Waiting | None = None
    missing_partitions: MissingPartitions = ()


async def _search(client: AsyncClient, asked: SearchArguments) -> Found:
    return await client.search(
        asked.query,
        collection=asked.collection,
        limit=asked.limit,
        mode=asked.mode,
        filter=asked.filter,
        rerank=asked.rerank,
    )


async def _fetch(client: AsyncClient, asked: FetchArguments) -> StoredText:
    return await client.get(asked.id, collection=asked.collection)


async def _answer(client: AsyncClient, asked: AnswerArguments) -> Answered:
    return await client.answer(
        asked.question,
        collection=asked.collection,
        head=asked.head,
        limit=asked.limit,
        top_k=asked.top_k,
        filter=asked.filter,
    )


async def _classify(client: AsyncClient, asked: ClassifyArguments) -> ClassifiedTexts:
    found = await client.classify(
        asked.head,
        texts=asked.texts,
        ids=asked.ids,
        collection=asked.collection,
        top_k=asked.top_k,
        accept_error=asked.accept_error,
    )
    return ClassifiedTexts(results=tuple(found))


async def _logs_query(client: AsyncClient, asked: LinesArguments) -> LinesFound:
    """Read lines until they are as many, or as large, as one answer may be.

    At a gateway an answer is in memory several times: one of 1,000 lines, each with 200 around it,
    would keep it from other requests for seconds.

    Raises:
        VersoError: a stream ended in a row with this error.
    """
    given = asked.model_dump(by_alias=True, exclude_none=True)
    lines: list[LineRow] = []
    size, most = 0, _FIRST_LINES // (1 + asked.before + asked.after)
    while True:
        given["limit"] = min(asked.limit - len(lines), max(1, most))
        data = b"".join([part async for part in client.lines(LinesRequest.model_validate(given))])
        rows, end = _rows(data)
        lines += rows
        size += len(data)
        if end.next_cursor is None or len(lines) >= asked.limit or size >= LINES_BYTES:
            rest = {name: getattr(end, name) for name in end.model_fields_set}
            return LinesFound(lines=tuple(lines), **rest)
        given["cursor"] = end.next_cursor
        most = (LINES_BYTES - size) * len(lines) // size


def _rows(data: bytes) -> tuple[list[LineRow], LineRow]:
    """Return the lines of a stream, and its last row, which says where it goes on.

    Raises:
        VersoError: the stream ended in a row with this error.
    """
    lines, end = [], LineRow()
    for row in map(LineRow.model_validate_json, data.splitlines()):
        if row.error is not None:
            raise row.error.exception()
        if row.id is None:
            end = row
        else:
            lines.append(row)
    return lines, end


async def _log_statements(client: AsyncClient, asked: StatementsArguments) -> StatementsAnswer:
    given = asked.model_dump(by_alias=True, exclude_none=True)
    return await client.log_statements(StatementsRequest.model_validate(given))


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    Attributes:
        name: of the tool, in the protocol.
        title: for people.
        description: for the agent that chooses it.
        arguments: what it takes.
        answer: what it answers.
        call: asks the platform.
    """

    name: str
    title: str
    description: str
    arguments: type[StrictModel]
    answer: type[OpenModel]
    call: Callable[[AsyncClient, Any], Awaitable[OpenModel]]


_ALL = (
    Tool(
        "search",
        "Search texts",
        "Find the stored texts that are nearest in meaning to a query, or share its words. Each "
        "hit has its exact text, id, score and metadata. The score orders the hits of one search; "
        "it is no probability.",
        SearchArguments,
        Found,
        _search,
    ),
    Tool(
        "fetch",
        "Read a document",
        "Read the exact text of a document, or of one record of it (document#n), as it was stored: "
        "`text`, or `text_base64` where its bytes are not UTF-8.",
        FetchArguments,
        StoredText,
        _fetch,
    ),
    Tool(
        "answer",
        "Answer a question",
        "Answer a question with parts of stored texts, quoted exactly, with the sentence that each "
        "stands in. `answered` is false where the texts hold no answer.",
        AnswerArguments,
        Answered,
        _answer,
    ),
    Tool(
        "classify",
        "Classify texts",
        "Say what texts, or stored documents, are, by one of the platform's heads: labels with "
        "calibrated probabilities.",
        ClassifyArguments,
        ClassifiedTexts,
        _classify,
    ),
    Tool(
        "logs_query",
        "Read log lines",
        "Read the lines of a log collection: the newest or oldest by time, labels and content, or "
        "those nearest to a question; with lines around each if asked.",
        LinesArguments,
        LinesFound,
        _logs_query,
    ),
    Tool(
        "log_statements",
        "List log statements",
        "List what the lines of a log collection have in common: statements with their number of "
        "lines and first and last times; with `new_since` those that are new. `logs_query` reads "
        "the lines of a statement by its id.",
        StatementsArguments,
        StatementsAnswer,
        _log_statements,
    ),
)
TOOLS = {tool.name: tool for tool in _ALL}
"""The tools by their names."""
