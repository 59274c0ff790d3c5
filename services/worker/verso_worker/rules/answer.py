"""Answer a question from given texts, or from a collection: search, rebuild, read.

    1. Contexts are the texts of the request, or the reconstructed texts of the records nearest to
       the question.
    2. The head reads every context in windows. For each context it returns the best spans, and the
       null score: the score of "there is no answer here". A head with a relevance lowers it where
       the sentence of the best span is like the question.
    3. Spans of all contexts are ordered by score - null score. The best one is the answer if the
       difference is above the head's threshold; otherwise there is no answer. A head may have a
       threshold of its own for records, of which a search has found the likeliest already.

Offsets index the original text, in bytes and, if it is UTF-8, in code points and UTF-16 code units.
The evidence of an answer is the sentence that contains it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from verso_core.errors import VersoError
from verso_core.heads import Calibration, Relevance, Task
from verso_core.jobs import Collection, ItemError, Result, SearchItem, Slice
from verso_core.jobs.heads.answer import (
    Answered,
    AnswerHit,
    AnswerHits,
    AnswerItem,
    AnswerParams,
    AnswerPart,
    AnswerSpans,
    UnreadRecord,
)
from verso_core.jobs.heads.models import TextSpan
from verso_core.jobs.models import record_name, text_field
from verso_core.jobs.search import Hits
from verso_core.texts import PAGE_END, sentence_around
from verso_worker.records import confidence
from verso_worker.records.outputs import Found, Span, Timings
from verso_worker.records.points import Hit
from verso_worker.rules.ports.models import Heads, ServedHead
from verso_worker.rules.ports.outcome import OnPart
from verso_worker.rules.reader import Chunk, Reader
from verso_worker.rules.search import Search

_GROUP_BYTES = 4096
"""Of contexts that are read before a caller who follows hears of them: about a second of a core."""

Find = Callable[[bytes], Hits]
"""Returns what a question finds."""


@dataclass(frozen=True, slots=True)
class Context:
    """A text in which an answer is searched.

    text: its bytes.
    read: the text as the head reads it, with one U+FFFD for each byte that is not UTF-8.
    exact: whether ``text`` is UTF-8.
    about: the fields that name it in a result.
    chunk: its record; None for a text of the request, or of a log collection.
    start: where it begins in its document, bytes, if that is known without its record.
    """

    text: bytes
    read: str
    exact: bool
    about: dict[str, Any]
    chunk: Chunk | None = None
    start: int | None = None

    @classmethod
    def of(
        cls,
        text: bytes,
        about: dict[str, Any],
        chunk: Chunk | None = None,
        *,
        start: int | None = None,
    ) -> Context:
        """Return the context of a text."""
        try:
            return cls(text, text.decode("utf-8"), True, about, chunk, start)
        except UnicodeDecodeError:
            kept = text.decode("utf-8", errors="surrogateescape")
        read = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in kept)
        return cls(text, read, False, about, chunk, start)

    def text_span(self, start: int, end: int) -> TextSpan:
        """Return characters [start, end) as offsets into the text."""
        if self.exact:
            first = len(self.read[:start].encode())
            return TextSpan.of(self.text, first, first + len(self.read[start:end].encode()))
        kept = self.text.decode("utf-8", errors="surrogateescape")
        first = len(kept[:start].encode("utf-8", errors="surrogateescape"))
        last = first + len(kept[start:end].encode("utf-8", errors="surrogateescape"))
        return TextSpan(start_byte=first, end_byte=last)


@dataclass(frozen=True, slots=True)
class Answer:
    """Runs heads that answer."""

    reader: Reader
    search: Search
    heads: Heads

    def run(
        self,
        work: Slice[AnswerParams, AnswerItem],
        collection: Collection | None,
        *,
        job: str | None,
        timings: Timings,
        find: Find | None = None,
        on_part: OnPart | None = None,
    ) -> Result[Answered]:
        """Answer the one question of a slice.

        Args:
            work: the slice.
            collection: where contexts are searched; None if the item has them.
            find: searches a collection that is not of documents alone.
            job: chooses the channel of the head; None for the stable version.
            timings: added to.
            on_part: receives what was found, and what the reader has found in each few contexts;
                None reads all of them at once.

        Raises:
            HeadUnknown, HeadInvalid: the head cannot be served.
            QuestionTooLong: the question leaves no room for a context.
        """
        found = {
            index: self._answered(
                item, work.params, collection, find, job=job, timings=timings, on_part=on_part
            )
            for index, item in work.accepted.items()
        }
        return Result(work.answered(found))

    def _answered(
        self,
        item: AnswerItem,
        asked: AnswerParams,
        collection: Collection | None,
        find: Find | None,
        *,
        job: str | None,
        timings: Timings,
        on_part: OnPart | None,
    ) -> Answered:
        head = self.heads.get(asked.head, task=Task.ANSWER, job=job)
        question, *given = _split(item)
        faults: list[UnreadRecord] = []
        if collection is None:
            contexts = [Context.of(text, {"context": n}) for n, text in enumerate(given)]
        elif find is not None:
            contexts = _contexts_of(find(question), faults)
        else:
            contexts = self._found(collection, question, asked, faults, timings)
        calibration = head.head.calibration
        if on_part is not None:
            on_part("hits", AnswerHits(hits=tuple(_hits(contexts))).public())
        read: list[Found] = []
        for group in [contexts] if on_part is None else _groups(contexts):
            with timings.phase("infer"):
                found = _read(head, question, group, count=asked.top_k)
            if on_part is not None:
                parts = [
                    self._described(None, group[n], span, found[n].null_score, calibration)
                    for n, span in _ranked(found, count=asked.top_k)
                ]
                done = len(read) + len(found)
                told = AnswerSpans(read=done, contexts=len(contexts), answers=tuple(parts))
                on_part("spans", told.public())
            read += found
        spans = _ranked(read, count=asked.top_k)
        with nullcontext() if collection is None else timings.phase("restore"):
            answers = [
                self._described(collection, contexts[n], span, read[n].null_score, calibration)
                for n, span in spans
            ]
        threshold = _threshold(calibration, given=collection is None)
        best = answers[0].score - answers[0].null_score if answers else None
        return Answered(
            **head.about,
            answered=best is not None and best > threshold,
            null_threshold=threshold,
            contexts=len(contexts),
            answers=tuple(answers),
            failed=tuple(faults),
        )

    def _found(
        self,
        collection: Collection,
        question: bytes,
        asked: AnswerParams,
        faults: list[UnreadRecord],
        timings: Timings,
    ) -> list[Context]:
        with timings.phase("infer"):
            query = self.search.query(collection, SearchItem(question))
        with timings.phase("store"):
            hits: list[tuple[Hit, Chunk]] = self.search.hits(
                collection, query, limit=asked.limit, where=asked.filter
            )
        with timings.phase("restore"):
            texts = self.reader.chunks(collection, [chunk for _, chunk in hits])
        contexts = []
        for (hit, chunk), text in zip(hits, texts, strict=True):
            about = record_name(chunk.document, chunk.index) | {"search_score": hit.score}
            if isinstance(text, VersoError):
                faults.append(UnreadRecord(**about, error=ItemError.of(text)))
            elif text.strip():
                about["metadata"] = hit.payload.get("m", {})
                contexts.append(Context.of(text, about, chunk))
        return contexts

    def _described(
        self,
        collection: Collection | None,
        context: Context,
        span: Span,
        null_score: float,
        calibration: Calibration,
    ) -> AnswerPart:
        where = context.text_span(span.start, span.end)
        fields = (
            context.about
            | where.public()
            | text_field(context.text[where.start_byte : where.end_byte])
        )
        before = self._before(collection, context.chunk)
        start = context.start if before is None else len(before)
        if start is not None:
            fields["document_start_byte"] = start + where.start_byte
            fields["document_end_byte"] = start + where.end_byte
        page = _page(context, before, where.start_byte)
        if page is not None:
            fields["page"] = page
        sure = confidence.answer_probability(span.score - null_score, calibration)
        if sure is not None:
            fields["confidence"] = round(sure, 4)
        return AnswerPart(
            **fields,
            score=span.score,
            null_score=null_score,
            evidence=context.text_span(*sentence_around(context.read, span.start, span.end)),
        )

    def _before(self, collection: Collection | None, chunk: Chunk | None) -> bytes | None:
        """Return what stands before a record in its document; None if it is not known."""
        if collection is None or chunk is None:
            return None
        before = [Chunk(chunk.document, chunk.entry, n) for n in range(chunk.index)]
        texts = self.reader.chunks(collection, before)
        known = [text for text in texts if isinstance(text, bytes)]
        return b"".join(known) if len(known) == len(texts) else None


def _page(context: Context, before: bytes | None, start: int) -> int | None:
    """Return the page of a file on which byte ``start`` of a context stands.

    Where the document is a page, metadata says which. Where it is the text of a whole file, as
    ``pages`` beside ``media_type`` says, the ends of pages are counted.
    """
    about = context.about.get("metadata", {})
    if "media_type" not in about:
        return None
    if isinstance(page := about.get("page"), int):
        return page
    if before is None or "pages" not in about:
        return None
    return 1 + before.count(PAGE_END) + context.text[:start].count(PAGE_END)


def _contexts_of(found: Hits, faults: list[UnreadRecord]) -> list[Context]:
    """Return the texts of hits; those that could not be read are added to ``faults``."""
    contexts = []
    for hit in found.hits:
        about = record_name(hit.document, hit.chunk) | {"search_score": hit.score}
        if hit.error is not None:
            faults.append(UnreadRecord(**about, error=hit.error))
        elif (text := hit.data).strip():
            about["metadata"] = hit.metadata
            contexts.append(Context.of(text, about, start=None if hit.chunk else 0))
    return contexts


def _hits(contexts: Sequence[Context]) -> Iterator[AnswerHit]:
    """Yield the records among contexts, with their texts."""
    for context in contexts:
        if "document" in context.about:
            yield AnswerHit.model_validate(context.about | text_field(context.text))


def _groups(contexts: Sequence[Context]) -> list[Sequence[Context]]:
    """Return contexts in groups of about ``_GROUP_BYTES``, in their order; at least one group."""
    groups: list[list[Context]] = [[]]
    size = 0
    for context in contexts:
        if groups[-1] and size + len(context.text) > _GROUP_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(context)
        size += len(context.text)
    return list(groups)


def _read(
    head: ServedHead, question: bytes, contexts: Sequence[Context], *, count: int
) -> list[Found]:
    texts = [context.read for context in contexts]
    # Also called without contexts: a question that is too long is an error then, too.
    found = head.run(
        lambda e, name, version: e.answer(
            name, version, question=question, contexts=texts or [" "], count=count
        )
    )[: len(texts)]
    relevance = head.head.calibration.relevance
    return found if relevance is None else _corrected(head, relevance, question, texts, found)


def _corrected(
    head: ServedHead,
    relevance: Relevance,
    question: bytes,
    texts: Sequence[str],
    found: Sequence[Found],
) -> list[Found]:
    """Return what was found, each null score corrected by the sentence of the best span."""
    places = [
        sentence_around(text, one.spans[0].start, one.spans[0].end) if one.spans else (0, 0)
        for text, one in zip(texts, found, strict=True)
    ]
    sentences = [text[start:end].encode() for text, (start, end) in zip(texts, places, strict=True)]
    vectors = head.model.recorder.engine.encode([question, *sentences]).vectors
    return [
        replace(one, null_score=relevance.corrected(one.null_score, float(cosine)))
        if one.spans
        else one
        for one, cosine in zip(found, vectors[1:] @ vectors[0], strict=True)
    ]


def _ranked(read: Sequence[Found], *, count: int) -> list[tuple[int, Span]]:
    """Return the best spans with the index of their context, by score - null score."""
    spans: list[tuple[float, int, Span]] = [
        (span.score - found.null_score, n, span)
        for n, found in enumerate(read)
        for span in found.spans
    ]
    spans.sort(key=lambda one: (-one[0], one[1], one[2].start))
    return [(n, span) for _, n, span in spans[:count]]


def _threshold(calibration: Calibration, *, given: bool) -> float:
    """Return what a margin has to pass: of texts that were given, or of records that were found."""
    found = calibration.found_null_threshold
    threshold = calibration.null_threshold if given or found is None else found
    return threshold or 0.0


def _split(item: AnswerItem) -> list[bytes]:
    texts, start = [], 0
    for size in item.split:
        texts.append(item.texts[start : start + size])
        start += size
    return texts
