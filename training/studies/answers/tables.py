"""Template questions about the tables of the CIA World Factbook 1995 (public domain).

A section is "Country - Title" and lines "key: value", some under a line "group:". A line becomes
"What is the total area of Chad?". The same question with the section of another country has no
answer there: texts that differ in one name teach a reader to look at it.
"""

from __future__ import annotations

import json
import lzma
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from verso_training.heads.questions import Question

_LINE = re.compile(r"^([A-Za-z][A-Za-z /-]{2,40}): +(.+)$")
_VALUE_END = re.compile(r"[;(]|, (?=[a-z])")
_MOST_WORDS = 8
_MOST = 700


def questions(root: Path) -> list[Question]:
    """Return the questions of all sections; their group is what is asked for."""
    with lzma.open(root / "prose" / "factbook1995.jsonl.xz", "rt", encoding="utf-8") as stream:
        return [row for line in stream for row in of_section(json.loads(line)["text"])]


def of_section(text: str) -> Iterator[Question]:
    """Yield the questions of one section, each with the part of it that holds its line."""
    title, *lines = text.split("\n")
    country, dash, section = title.partition(" - ")
    if not dash:
        return
    group = ""
    for at, line in enumerate(lines):
        found = _LINE.match(line)
        if found is None:
            group = line.rstrip(":").lower() if line.endswith(":") else group
            continue
        if line[0].isupper():
            group = ""
        key, value = found[1].strip(), _VALUE_END.split(found[2], maxsplit=1)[0].strip(" ,.")
        if (
            not value
            or len(value.split()) > _MOST_WORDS
            or value.lower() in {"na", "none"}
            or key == "note"
        ):
            continue
        name = key.lower() if key[1:2].islower() else key
        if group and group not in name:
            name = f"{name} of the {group}"
        yield Question(
            f"factbook:{country}:{section}:{at}", f"What is the {name} of {country}?",
            "\n".join([title, *_around(lines, at)]), (value,), f"{section}:{name}",
        )  # fmt: skip


def _around(lines: Sequence[str], at: int) -> list[str]:
    """Return a line and as many of its neighbours as fit into a passage."""
    first, last = at, at + 1
    size = len(lines[at])
    while first > 0 or last < len(lines):
        if first > 0:
            first, size = first - 1, size + len(lines[first - 1])
        if last < len(lines):
            last, size = last + 1, size + len(lines[last])
        if size > _MOST:
            break
    return [line[:_MOST] for line in lines[first:last]]


def elsewhere(asked: Sequence[Question], *, count: int, seed: int = 0) -> list[Question]:
    """Return questions with the same part of another country's section, which has no answer."""
    rng = random.Random(seed)
    groups: dict[str, list[Question]] = {}
    for row in asked:
        groups.setdefault(row.group, []).append(row)
    pool = [row for row in asked if len(groups[row.group]) > 1]
    made = []
    for row in rng.sample(pool, min(count, len(pool))):
        other = rng.choice(
            [one for one in groups[row.group] if one.context != row.context] or [row]
        )
        if other is not row:
            made.append(Question(f"{row.key}:other", row.question, other.context, (), row.group))
    return made
