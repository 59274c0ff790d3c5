"""``verso convert``: questions from tables and notes to the layout that heads are trained from.

A table is CSV with a header: ``context``, ``question``, ``answer`` and, if they are there,
``title``, ``split`` and ``id``. Rows of one context and question are one question with several
answers; an empty answer means that the context has none.

Notes are text:

    # storage manual
    A disk is taken out of service when three writes in a row have failed.
    Q: When is a disk taken out of service?
    A: three writes in a row have failed
    Q: Who takes it out?

A line with # begins a document, text behind questions begins the next paragraph. A question without
an ``A:`` has no answer in its paragraph.

People copy answers by hand, so that one is also found where its white space or its case differs;
the paragraph's own words are then the answer.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from verso_client.cli.terminal import failures_reported
from verso_core import questions
from verso_core.errors import TrainingDataInvalid

NEEDED = ("context", "question", "answer")
_NOTE = re.compile(r"(?P<kind>#+|[QqAa]:)\s*(?P<text>.*)")


@dataclass(frozen=True)
class Written:
    """A question as it was written down.

    Attributes:
        place: Of the file, for messages.
        answers: Words of the context, or what someone took for them.
    """

    place: str
    title: str
    context: str
    question: str
    answers: tuple[str, ...]
    id: str = ""
    split: str = ""


@dataclass
class Converted:
    """The questions in SQuAD's layout, and those whose answer their context does not have."""

    document: dict[str, Any]
    missing: list[str] = field(default_factory=list)


def convert(
    files: Annotated[list[Path], typer.Argument(help="CSV tables (.csv), or notes in text.")],
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("questions.json"),
    skip: Annotated[
        bool, typer.Option("--skip", help="Leave out questions whose answer is not in the text.")
    ] = False,
) -> None:
    """Convert questions in CSV or notes to SQuAD's layout."""
    with failures_reported():
        asked = [one for path in files for one in read(path)]
        made = converted(asked)
        if made.missing and not skip:
            raise TrainingDataInvalid(made.missing[0])
        found = questions.read(made.document)
        out.write_text(json.dumps(made.document, ensure_ascii=False, indent=1) + "\n", "utf-8")
    for missing in made.missing:
        typer.echo(f"left out: {missing}", err=True)
    count = sum(len(paragraph.questions) for paragraph in found)
    typer.echo(f"{out}: {count} questions on {len(found)} texts")


def read(path: Path) -> Iterator[Written]:
    """Yield the questions of a file.

    Raises:
        OSError: it cannot be read.
        TrainingDataInvalid: it is not UTF-8, or a column is missing.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise TrainingDataInvalid(f"{path}: expected UTF-8") from exc
    yield from (_table if path.suffix == ".csv" else _notes)(text, path)


def _table(text: str, path: Path) -> Iterator[Written]:
    rows = csv.DictReader(io.StringIO(text, newline=""))
    lacking = [name for name in NEEDED if name not in (rows.fieldnames or ())]
    if lacking:
        raise TrainingDataInvalid(f"{path}: expected a column {lacking[0]!r}")
    found: dict[tuple[str, str, str], Written] = {}
    for row in rows:
        value = {name: (row.get(name) or "").strip() for name in (*NEEDED, "title", "id", "split")}
        context = row.get("context") or ""
        if not context.strip() or not value["question"]:
            raise TrainingDataInvalid(f"{path}, line {rows.line_num}: expected text and question")
        key = (value["title"], context, value["question"])
        before = found[key].answers if key in found else ()
        answers = (*before, value["answer"]) if value["answer"] else before
        first = found.get(key)
        found[key] = Written(
            f"{path}, line {rows.line_num}" if first is None else first.place,
            value["title"],
            context,
            value["question"],
            answers,
            value["id"] if first is None else first.id,
            value["split"] if first is None else first.split,
        )
    yield from found.values()


@dataclass
class _Paragraph:
    """A paragraph of notes, as far as it was read.

    Attributes:
        asked: Line, question and answers.
    """

    title: str
    lines: list[str] = field(default_factory=list)
    asked: list[tuple[int, str, list[str]]] = field(default_factory=list)

    def written(self, path: Path) -> Iterator[Written]:
        """Yield its questions."""
        context = "\n".join(self.lines).strip()
        for number, question, answers in self.asked:
            place = f"{path}, line {number}"
            if not context:
                raise TrainingDataInvalid(f"{place}: expected a text before the question")
            yield Written(place, self.title, context, question, tuple(answers))


def _notes(text: str, path: Path) -> Iterator[Written]:
    note = _Paragraph(path.stem)
    for number, line in enumerate(text.splitlines(), start=1):
        match = _NOTE.fullmatch(line.strip())
        kind, told = (match["kind"].lower(), match["text"]) if match else ("", "")
        if kind.startswith("#"):
            yield from note.written(path)
            note = _Paragraph(told or path.stem)
        elif kind == "q:":
            note.asked.append((number, told, []))
        elif kind == "a:":
            if not note.asked:
                raise TrainingDataInvalid(f"{path}, line {number}: expected a question before A:")
            note.asked[-1][2].extend([told] if told else [])
        elif not note.asked:
            note.lines.append(line)
        elif line.strip():
            yield from note.written(path)
            note = _Paragraph(note.title, [line])
    yield from note.written(path)


def converted(asked: Iterable[Written]) -> Converted:
    """Return questions in SQuAD's layout, grouped by document and paragraph."""
    made = Converted({"version": "v2.0", "data": []})
    articles: dict[tuple[str, str], dict[str, Any]] = {}
    paragraphs: dict[tuple[str, str, str], dict[str, Any]] = {}
    for number, one in enumerate(asked):
        spans = [located(answer, one.context) for answer in one.answers]
        if None in spans:
            answer = one.answers[spans.index(None)]
            made.missing.append(f"{one.place}: expected the answer {answer[:80]!a} in its text")
            continue
        title = one.title or "untitled"
        if (title, one.split) not in articles:
            article = {"title": title, **({"split": one.split} if one.split else {})}
            articles[title, one.split] = article | {"paragraphs": []}
        own = paragraphs.setdefault(
            (title, one.split, one.context), {"context": one.context, "qas": []}
        )
        if not own["qas"]:
            articles[title, one.split]["paragraphs"].append(own)
        own["qas"].append(_question(one, [span for span in spans if span], number=number))
    made.document["data"] += articles.values()
    return made


def _question(one: Written, spans: list[tuple[int, int]], *, number: int) -> Mapping[str, Any]:
    return {
        "id": one.id or str(number),
        "question": one.question,
        "answers": [
            {"text": one.context[start:end], "answer_start": start} for start, end in spans
        ],
        "is_impossible": not spans,
    }


def located(answer: str, context: str) -> tuple[int, int] | None:
    """Return where an answer stands in a text, exactly or but for white space and case."""
    at = context.find(answer)
    if at >= 0:
        return at, at + len(answer)
    pattern = r"\s+".join(re.escape(word) for word in answer.split())
    match = re.search(pattern, context, re.IGNORECASE)
    return None if match is None else match.span()
