"""Made-up examples that a small head learns in seconds."""

from __future__ import annotations

import random
from typing import Any

QUESTION = "what was the fault"
FAULTS = ("timed out", "was refused", "is lost", "was reset by peer", "ran out of memory")
SETTINGS = {
    "layers": "vanilla",
    "start": "",
    "rate": 4e-3,
    "rank": 8,
    "alpha": 16,
    "epochs": 12,
    "max_tokens": 96,
    "stride": 24,
    "tokens_per_step": 800,
}
"""Of a reader on the tiny artifact's encoder."""


def day(dice: random.Random, number: int) -> dict[str, Any]:
    """One article: two lines of a log, most of which tell a fault."""
    paragraphs = []
    for hour in range(2):
        fault = dice.choice((*FAULTS, None))
        said = "has answered" if fault is None else fault
        text = (
            f"2026-03-{number % 28 + 1:02d}T{hour:02d}:06:07Z WARN keeper: worker "
            f"{dice.randrange(9)} of {dice.randrange(9)} {said}, retry in {dice.randrange(9)} s"
        )
        answers = [] if fault is None else [{"text": fault, "answer_start": text.index(fault)}]
        question = {
            "id": f"{number}.{hour}",
            "question": QUESTION,
            "answers": answers,
            "is_impossible": not answers,
        }
        paragraphs.append({"context": text, "qas": [question]})
    return {"title": f"day {number}", "paragraphs": paragraphs}


def squad(days: int = 60) -> dict[str, Any]:
    """A file of questions as SQuAD 2.0 lays it out."""
    dice = random.Random(1)
    return {"version": "v2.0", "data": [day(dice, number) for number in range(days)]}


def groups(count: int = 60) -> list[dict[str, Any]]:
    """Questions with the line that tells that something timed out, and two other lines."""
    dice = random.Random(3)
    return [
        {
            "question": f"what timed out, case {number}",
            "right": [f"worker {dice.randrange(99)} {FAULTS[0]}"],
            "wrong": [
                f"worker {dice.randrange(99)} {fault}" for fault in dice.sample(FAULTS[1:], 2)
            ],
        }
        for number in range(count)
    ]


def pairs(count: int = 120) -> list[dict[str, str | float]]:
    """Questions and lines: 1 where the line tells that something timed out, else 0."""
    dice = random.Random(2)
    found: list[dict[str, str | float]] = []
    for number in range(count):
        fits = number % 2 == 0
        fault = FAULTS[0] if fits else dice.choice(FAULTS[1:])
        line = f"worker {dice.randrange(99)} {fault}"
        found.append(
            {"text_1": f"what timed out, case {number}", "text_2": line, "score": float(fits)}
        )
    return found
