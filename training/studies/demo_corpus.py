"""Make the sample corpus of `verso demo` out of a folder of public data sets.

    python -m studies.demo_corpus DATA_FOLDER

Nothing in the corpus was used to train the shipped model: log texts come from published ``test``
and ``stress`` parts, prose from the documents that training holds out
(:func:`verso_training.data.sources.held_out`). A hash of their id selects the texts, so the same
data gives the same corpus, and no text is selected for its figures.

Texts are taken byte for byte as they stand in their source (a page, a block, a line, a paragraph);
exact repeats are taken once.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from verso_standalone import sample
from verso_training.data.sources import held_out

OUT = sample.FOLDER / "corpus.jsonl.xz"
LONGEST_BYTES = 9_000
_STAMP = re.compile(r"^\ufeff?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,6})\d*Z ")
_NUMBERS = re.compile(r"\d+|0x[0-9a-f]+|[0-9a-f]{8,}")


@dataclass(frozen=True)
class Text:
    """One text of the corpus, as it is written to a line of ``corpus.jsonl``."""

    id: str
    text: str
    source: str
    kind: str
    system: str
    time: float | None = None
    """Unix seconds, where the source says when the text was written."""

    @property
    def size_bytes(self) -> int:
        return len(self.text.encode("utf-8"))


@dataclass(frozen=True)
class Part:
    """How many texts of one kind are taken, and of which sizes."""

    texts: Callable[[Path], Iterator[Text]]
    count: int
    least_bytes: int = 1
    most_bytes: int = LONGEST_BYTES
    per_group: int | None = None
    """Most texts taken from one group (the id up to its last slash), so that no job dominates."""


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as stream:
        for line in stream:
            yield json.loads(line)


def check_blocks(data: Path) -> Iterator[Text]:
    for row in rows(data / "logs_rcheck" / "test.jsonl.xz"):
        if not row["truncated"]:
            yield Text(
                f"r-check/{row['package']}/{row['id']}",
                row["text"],
                row["checked_for"],
                "check",
                "r",
                datetime.fromisoformat(row["date"]).timestamp(),
            )


def install_logs(data: Path) -> Iterator[Text]:
    for row in rows(data / "logs_rinstall" / "test.jsonl.xz"):
        if not row["truncated"]:
            yield Text(
                f"r-install/{row['package']}/{row['id']}",
                row["text"],
                row["checked_for"],
                "install",
                "r",
                datetime.fromisoformat(row["date"]).timestamp(),
            )


def stack_traces(data: Path) -> Iterator[Text]:
    for row in rows(data / "logs_defects4j" / "test.jsonl.xz"):
        if not row["truncated"]:
            yield Text(
                f"junit/{row['project']}/{row['id']}",
                row["text"],
                "rjust/defects4j",
                "trace",
                "java",
            )


def crash_reports(data: Path) -> Iterator[Text]:
    for row in rows(data / "logs_syzkaller" / "test.jsonl.xz"):
        if not row["truncated"]:
            stamp = datetime.fromisoformat(row["date"]).replace(tzinfo=UTC).timestamp()
            yield Text(
                f"kernel/{row['id']}", row["text"], "google/syzkaller", "crash", row["os"], stamp
            )


def crash_lines(data: Path) -> Iterator[Text]:
    for report in crash_reports(data):
        for number, line in enumerate(report.text.split("\n"), 1):
            yield Text(
                f"{report.id}/L{number}", line, report.source, "line", report.system, report.time
            )


def job_lines(data: Path) -> Iterator[Text]:
    for row in rows(data / "logs_ci_logdx" / "stress.jsonl.xz"):
        shapes: set[str] = set()
        for number, line in enumerate(row["text"].split("\n"), 1):
            stamp = _STAMP.match(line)
            shape = _NUMBERS.sub("0", line[stamp.end() :] if stamp else line)
            if stamp and shape not in shapes and len(shape) > 15:
                shapes.add(shape)
                yield Text(
                    f"ci/{row['id']}/L{number}",
                    line,
                    "eyuansu62/LogDx",
                    "line",
                    row["repo"],
                    _seconds(stamp),
                )


def job_steps(data: Path) -> Iterator[Text]:
    """Yield runs of 16 lines of a job, one text each, from one line in 200 of every job."""
    for row in rows(data / "logs_ci_logdx" / "stress.jsonl.xz"):
        lines = row["text"].split("\n")
        for start in range(0, len(lines) - 16, 200):
            stamp = _STAMP.match(lines[start])
            if stamp:
                yield Text(
                    f"ci/{row['id']}/L{start + 1}-L{start + 16}",
                    "\n".join(lines[start : start + 16]),
                    "eyuansu62/LogDx",
                    "step",
                    row["repo"],
                    _seconds(stamp),
                )


def doc_pages(data: Path) -> Iterator[Text]:
    for row in rows(data / "prose" / "techdocs.jsonl.xz"):
        name, _, part = str(row["id"]).partition("#")
        if held_out(name) and not part:
            yield Text(f"docs/{name}", row["text"], row["source"], "page", "documentation")


def doc_paragraphs(data: Path) -> Iterator[Text]:
    for row in rows(data / "prose" / "techdocs.jsonl.xz"):
        name, _, part = str(row["id"]).partition("#")
        # Pages short enough are taken whole: their paragraphs would be repeats.
        if held_out(name) and (part or len(row["text"].encode("utf-8")) > LONGEST_BYTES):
            for number, paragraph in enumerate(str(row["text"]).split("\n\n"), 1):
                yield Text(
                    f"docs/{name}/{part or 0}/P{number}",
                    paragraph,
                    row["source"],
                    "paragraph",
                    "documentation",
                )


def facts(data: Path) -> Iterator[Text]:
    for row in rows(data / "prose" / "factbook1995.jsonl.xz"):
        if held_out(str(row["id"])):
            name = str(row["id"]).replace(":", "/")
            yield Text(name, row["text"], "cia-world-factbook-1995", "page", "factbook")


def book_paragraphs(data: Path) -> Iterator[Text]:
    for volume in (1, 2, 3, 4):
        for row in rows(data / "prose" / f"books_{volume}.jsonl.xz"):
            book, _, place = str(row["id"]).partition("#")
            if held_out(book):
                for number, paragraph in enumerate(str(row["text"]).split("\n\n"), 1):
                    yield Text(
                        f"books/{book.removeprefix('books:')}/{place}/P{number}",
                        paragraph,
                        "classic-books",
                        "paragraph",
                        "books",
                    )


PARTS = (
    Part(check_blocks, 430),
    Part(install_logs, 80),
    Part(stack_traces, 22),
    Part(crash_reports, 14, least_bytes=400, most_bytes=6_000),
    Part(crash_lines, 330, least_bytes=25, per_group=9),
    Part(job_lines, 900, least_bytes=60, most_bytes=400, per_group=130),
    Part(job_steps, 40, most_bytes=4_000, per_group=8),
    Part(doc_pages, 40, least_bytes=400),
    Part(doc_paragraphs, 320, least_bytes=150, most_bytes=1_500),
    Part(facts, 40),
    Part(book_paragraphs, 230, least_bytes=120, most_bytes=2_500, per_group=3),
)


def corpus(data: Path) -> list[Text]:
    """Return all texts, in an order that mixes the sources."""
    taken: list[Text] = []
    seen: set[str] = set()
    for part in PARTS:
        left = part.count
        groups: dict[str, int] = {}
        for text in sorted(part.texts(data), key=_order):
            group = text.id.rpartition("/")[0]
            fits = part.least_bytes <= text.size_bytes <= part.most_bytes
            if not fits or not text.text.strip() or text.text in seen or left == 0:
                continue
            if part.per_group is not None and groups.get(group, 0) >= part.per_group:
                continue
            groups[group] = groups.get(group, 0) + 1
            seen.add(text.text)
            taken.append(text)
            left -= 1
    return sorted(taken, key=_order)


def write(texts: list[Text], path: Path) -> None:
    """Write the corpus as xz-compressed JSON lines."""
    with lzma.open(path, "wt", encoding="utf-8", newline="\n", preset=9) as stream:
        for text in texts:
            row: dict[str, Any] = {"id": text.id, "text": text.text}
            row["metadata"] = {"source": text.source, "kind": text.kind, "system": text.system}
            if text.time is not None:
                row["time"] = text.time
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def _order(text: Text) -> bytes:
    return hashlib.sha256(text.id.encode("utf-8")).digest()


def _seconds(stamp: re.Match[str]) -> float:
    return datetime.fromisoformat(stamp[1]).replace(tzinfo=UTC).timestamp()


def main() -> None:
    texts = corpus(Path(sys.argv[1]))
    write(texts, OUT)
    kinds: dict[str, list[int]] = {}
    for text in texts:
        kinds.setdefault(text.id.partition("/")[0] + " " + text.kind, []).append(text.size_bytes)
    for name, sizes in sorted(kinds.items()):
        sys.stdout.write(f"{name:25} {len(sizes):6,} texts {sum(sizes):10,} bytes\n")
    total = sum(text.size_bytes for text in texts)
    sys.stdout.write(f"{'all':25} {len(texts):6,} texts {total:10,} bytes\n")


if __name__ == "__main__":
    main()
