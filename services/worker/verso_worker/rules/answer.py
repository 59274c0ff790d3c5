"""Answer a question from given texts, or from a collection: search, rebuild, read.

    1. Contexts are the texts of the request, or the rebuilt texts of the records nearest to the
       question.
    2. The head reads every context in windows and gives its best spans and its null score, which
       is the score of "there is no answer here".
    3. Spans of all contexts are ordered by score - null score; the best is the answer if it passes
       the head's threshold, else "no answer" is.

Offsets index the original text, in bytes and, where it is UTF-8, in characters (code points). An
answer comes with the sentence it stands in, as its evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verso_core.errors import VersoError, error_body
from verso_core.heads import Task
from verso_core.jobs import Collection, Filter, Item, Result, Slice
from verso_core.texts import SENTENCE_END
from verso_worker.records.outputs import Found, Span, Timings
from verso_worker.records.points import Hit
from verso_worker.rules.head_ports import Heads, ServedHead
from verso_worker.rules.items import is_accepted
from verso_worker.rules.reader import Chunk, Reader
from verso_worker.rules.search import Search

_EVIDENCE_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Context:
    """A text that is read.

    text: its bytes.
    read: as the head sees it, one character for each byte that is not UTF-8.
    about: what a result says of it.
    """

    text: bytes
    read: str
    exact: bool
    about: dict[str, Any]

    @classmethod
    def of(cls, text: bytes, about: dict[str, Any]) -> Context:
        """Take a text."""
        kept = text.decode("utf-8", errors="surrogateescape")
        read = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in kept)
        return cls(text, read, kept == read, about)

    def place(self, start: int, end: int) -> dict[str, int]:
        """Return characters [start, end) as offsets into the text."""
        if self.exact:
            first = len(self.read[:start].encode())
            last = first + len(self.read[start:end].encode())
            return {"start": start, "end": end, "start_byte": first, "end_byte": last}
        kept = self.text.decode("utf-8", errors="surrogateescape")
        first = len(kept[:start].encode("utf-8", errors="surrogateescape"))
        last = first + len(kept[start:end].encode("utf-8", errors="surrogateescape"))
        return {"start_byte": first, "end_byte": last}


@dataclass(frozen=True, slots=True)
class Answer:
    """Runs heads that answer."""

    reader: Reader
    search: Search
    heads: Heads

    def run(
        self, work: Slice, collection: Collection | None, *, job: str | None, timings: Timings
    ) -> Result:
        """Answer the one question of a slice.

        Args:
            work: the slice: its item's blob is the question and the contexts, one after another,
                ``split`` their sizes in bytes.
            collection: where contexts are found; None where they are in the item.
            job: chooses the channel of the head; None for what is stable.
            timings: added to.

        Raises:
            HeadUnknown, HeadInvalid: the head cannot be served.
            QuestionTooLong: the question leaves no room for a context.
        """
        [item] = work.items
        items: list[dict[str, Any]] = [{}]
        result = Result(items)
        if not is_accepted(item, items, 0):
            return result
        head = self.heads.get(str(work.params["head"]), task=Task.ANSWER, job=job)
        question, *given = _split(item)
        faults: list[dict[str, Any]] = []
        if collection is None:
            contexts = [Context.of(text, {"context": n}) for n, text in enumerate(given)]
            chunks: list[Chunk] = []
        else:
            contexts, chunks = self._found(collection, question, work, faults, timings)
        count = int(work.params["top_k"])
        with timings.phase("infer"):
            read = _read(head, question, contexts, count=count)
        answers = _ranked(contexts, read, count=count)
        if collection is not None:
            with timings.phase("restore"):
                self._in_documents(collection, answers, chunks)
        threshold = head.head.calibration.null_threshold or 0.0
        best = answers[0]["score"] - answers[0]["null_score"] if answers else None
        items[0] = head.about | {
            "ok": True,
            "answered": best is not None and best > threshold,
            "null_threshold": threshold,
            "contexts": len(contexts),
            "answers": [
                {key: value for key, value in answer.items() if key != "text"}
                | {"blob": result.add_blob(answer["text"])}
                for answer in answers
            ],
            "failed": faults,
        }
        return result

    def _found(
        self,
        collection: Collection,
        question: bytes,
        work: Slice,
        faults: list[dict[str, Any]],
        timings: Timings,
    ) -> tuple[list[Context], list[Chunk]]:
        where = work.params.get("filter")
        with timings.phase("infer"):
            query = self.search.query(collection, Item({}, question))
        with timings.phase("store"):
            hits: list[tuple[Hit, Chunk]] = self.search.hits(
                collection,
                query,
                limit=int(work.params["limit"]),
                where=None if where is None else Filter.model_validate(where),
            )
        with timings.phase("restore"):
            texts = self.reader.chunks(collection, [chunk for _, chunk in hits])
        contexts, chunks = [], []
        for (hit, chunk), text in zip(hits, texts, strict=True):
            about = {"id": chunk.document, "chunk": chunk.index, "search_score": hit.score}
            if isinstance(text, VersoError):
                faults.append(about | {"error": error_body(text)})
                continue
            if text.strip():
                contexts.append(Context.of(text, about | {"metadata": hit.payload.get("m", {})}))
                chunks.append(chunk)
        return contexts, chunks

    def _in_documents(
        self, collection: Collection, answers: Sequence[dict[str, Any]], chunks: Sequence[Chunk]
    ) -> None:
        """Add where each answer stands in its whole document: behind the records before its own."""
        by_record = {(chunk.document, chunk.index): chunk for chunk in chunks}
        for answer in answers:
            chunk = by_record[answer["id"], answer["chunk"]]
            before = [Chunk(chunk.document, chunk.entry, n) for n in range(chunk.index)]
            texts = self.reader.chunks(collection, before)
            if all(isinstance(text, bytes) for text in texts):
                start = sum(len(text) for text in texts if isinstance(text, bytes))
                answer["document_start_byte"] = start + answer["start_byte"]
                answer["document_end_byte"] = start + answer["end_byte"]


def _read(
    head: ServedHead, question: bytes, contexts: Sequence[Context], *, count: int
) -> list[Found]:
    texts = [context.read for context in contexts]
    # Asked with no contexts too: a question that is too long is told even where nothing was found.
    return head.run(
        lambda e, name, version: e.answer(
            name, version, question=question, contexts=texts or [" "], count=count
        )
    )[: len(texts)]


def _ranked(
    contexts: Sequence[Context], read: Sequence[Found], *, count: int
) -> list[dict[str, Any]]:
    """Order the spans of all contexts by how far they are above their context's null score."""
    spans: list[tuple[float, int, Span]] = [
        (span.score - found.null_score, place, span)
        for place, found in enumerate(read)
        for span in found.spans
    ]
    spans.sort(key=lambda one: (-one[0], one[1], one[2].start))
    answers = []
    for _, place, span in spans[:count]:
        context = contexts[place]
        where = context.place(span.start, span.end)
        first, last = _sentence(context.read, span)
        answers.append(
            context.about
            | where
            | {
                "text": context.text[where["start_byte"] : where["end_byte"]],
                "score": span.score,
                "null_score": read[place].null_score,
                "evidence": context.place(first, last),
            }
        )
    return answers


def _sentence(text: str, span: Span) -> tuple[int, int]:
    """Return the sentence or line around a span, at most so many characters to either side."""
    start = max(0, span.start - _EVIDENCE_CHARACTERS)
    end = min(len(text), span.end + _EVIDENCE_CHARACTERS)
    before = list(SENTENCE_END.finditer(text, start, span.start))
    after = SENTENCE_END.search(text, span.end, end)
    return (before[-1].end() if before else start), (after.start() if after else end)


def _split(item: Item) -> list[bytes]:
    blob, texts, start = item.blob or b"", [], 0
    for size in item.header["split"]:
        texts.append(blob[start : start + size])
        start += size
    return texts
