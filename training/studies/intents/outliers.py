"""Texts that no intent is meant by: what a head of intents learns to refuse.

Those that are trained on come from sets that may ship: lines of test and kernel logs, books and
documentation, this project's own code, and strings, words and punctuation drawn at random. Lines of
loghub, which may not ship, and other draws are for measuring only.
"""

from __future__ import annotations

import json
import lzma
import random
import re
import string
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import verso_core
from verso_training.heads.rows import RowSplit

_CODE_COMMIT = "482e4537"
_LOGS = ("logs_rcheck", "logs_rinstall", "logs_defects4j", "logs_syzkaller")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_WORD = re.compile(r"[a-z]{3,10}")
_BLANK = (
    *("", " ", "\t", "\n", ".", "..", "...", "?", "??", "!", "!!!", "?!", "-", "--", "---", "_"),
    *(
        ",",
        ";",
        ":",
        "/",
        "//",
        "\\",
        "|",
        "*",
        "**",
        "#",
        "##",
        "&",
        "%",
        "$",
        "@",
        "+",
        "=",
        "==",
    ),
    *("~", "^", "()", "[]", "{}", "<>", '""', "''", "`", ". .", "- -", "( )", "=====", "-----"),
    *("* * *", ".....", "/* */", "<!-- -->", "||", ">>", "<<", "=>"),
)
_LEVELS = ("INFO", "WARN", "ERROR", "DEBUG", "info", "error", "W", "E", "notice", "FATAL")
_PARTS = (
    *("kernel", "sshd", "systemd", "nova.compute", "dfs.DataNode", "httpd", "cron", "proxy"),
    *("org.apache.Server", "ActivityManager", "worker-3", "main", "auth", "scheduler"),
)


@dataclass(frozen=True)
class Outlier:
    """A text out of scope, its kind and its part."""

    text: str
    kind: str
    split: RowSplit


def outliers(data: Path, *, each: int, seed: int = 0) -> list[Outlier]:
    """Return ``each`` texts of every kind, in a fixed order; a fifth is for validation, one to
    test."""
    rng = random.Random(seed)
    words = _words(data)
    kinds: dict[str, Callable[[], str]] = {
        "log line": _drawn(rng, list(_log_lines(data))),
        "made-up log line": lambda: _made_up_line(rng, words),
        "prose": _drawn(rng, list(_sentences(data))),
        "code": _drawn(rng, list(_code())),
        "random string": lambda: _string(rng),
        "random words": lambda: " ".join(
            rng.choice(words) for _ in range(rng.choice((1, 2, 2, 3)))
        ),
    }
    found, seen = [], set[str]()
    for kind, draw in kinds.items():
        count = 0
        while count < each:
            text = draw()
            if text not in seen:
                seen.add(text)
                found.append(Outlier(text, kind, _split(count)))
                count += 1
    found += [Outlier(text, "blank", _split(n)) for n, text in enumerate(_BLANK)]
    return found


def strange(data: Path, *, each: int, seed: int = 1) -> dict[str, list[str]]:
    """Return texts of kinds, or of sources, that nothing was trained on, by kind."""
    rng = random.Random(seed)
    words = _words(data)
    lines = []
    for path in sorted((data / "logs_loghub2k").glob("*/*_2k.log")):
        lines += path.read_text(encoding="utf-8", errors="replace").splitlines()
    return {
        "log lines (loghub, 14 systems)": rng.sample(lines, 3 * each),
        "random strings": [_string(rng) for _ in range(each)],
        "two random words": [" ".join(rng.sample(words, 2)) for _ in range(each)],
    }


def _split(number: int) -> RowSplit:
    parts = (RowSplit.TRAIN, RowSplit.TRAIN, RowSplit.TRAIN, RowSplit.VALIDATION, RowSplit.TEST)
    return parts[number % len(parts)]


def _drawn(rng: random.Random, pool: Sequence[str]) -> Callable[[], str]:
    return lambda: rng.choice(pool)


def _log_lines(data: Path) -> Iterator[str]:
    for name in _LOGS:
        for number, row in enumerate(_rows(data / name / "train.jsonl.xz")):
            if number % 5 == 0:
                lines = [line for line in str(row["text"]).splitlines() if len(line.strip()) > 8]
                yield from (line[:200] for line in lines[:8])


def _made_up_line(rng: random.Random, words: Sequence[str]) -> str:
    time = f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}"
    day, month = rng.randint(1, 28), rng.choice(("Jan", "Jun", "Dec"))
    level = rng.choice(_LEVELS)
    head = rng.choice(
        (
            f"2026-{rng.randint(1, 12):02}-{day:02}T{time}Z {level} ",
            f"{month} {day} {time} host{rng.randint(1, 40)} ",
            f"[{rng.randint(0, 99999)}.{rng.randint(0, 999999):06}] ",
            f"- {rng.randint(1_100_000_000, 1_800_000_000)} ",
            f"{level} ",
            "",
        )
    )
    part = f"{rng.choice(_PARTS)}[{rng.randint(1, 32000)}]: "
    body = " ".join(
        rng.choice(
            (
                rng.choice(words),
                rng.choice(words),
                f"{rng.choice(words)}={rng.randint(0, 65535)}",
                f"10.{rng.randint(0, 255)}.{rng.randint(0, 255)}.{rng.randint(1, 254)}",
                f"0x{rng.getrandbits(32):08x}",
                f"/{rng.choice(words)}/{rng.choice(words)}.{rng.choice(('c', 'so', 'java'))}",
            )
        )
        for _ in range(rng.randint(3, 10))
    )
    return head + part + body


def _sentences(data: Path) -> Iterator[str]:
    for name in ("books_1", "techdocs"):
        for number, row in enumerate(_rows(data / "prose" / f"{name}.jsonl.xz")):
            if number % 6 == 0:
                text = str(row["text"])[:6000]
                found = [s.replace("\n", " ") for s in _SENTENCE.split(text) if 20 < len(s) < 250]
                yield from found[1:4]


def _words(data: Path) -> list[str]:
    found: set[str] = set()
    for number, row in enumerate(_rows(data / "prose" / "books_2.jsonl.xz")):
        if number % 40 == 0:
            found.update(_WORD.findall(str(row["text"]).lower()))
    return sorted(found)


def _code() -> Iterator[str]:
    """Yield lines of code as one commit has them: those of the tree at hand change."""
    listed = _git("ls-tree", "-r", "--name-only", _CODE_COMMIT, "shared/verso_core").splitlines()
    for path in sorted(Path(name) for name in listed if name.endswith(".py")):
        for line in _git("show", f"{_CODE_COMMIT}:{path}").splitlines():
            if len(line.strip()) > 15 and not line.lstrip().startswith(("#", '"')):
                yield line.strip()


def _git(*command: str) -> str:
    top = Path(verso_core.__file__).parents[2]
    found = subprocess.run(["git", "-C", top, *command], check=True, stdout=subprocess.PIPE)
    return found.stdout.decode()


def _string(rng: random.Random) -> str:
    kinds = (
        string.ascii_lowercase,
        string.ascii_letters + string.digits,
        string.hexdigits.lower(),
        string.digits,
        "asdfjklqwertyuiop",
        string.ascii_letters + string.digits + string.punctuation,
    )
    pool = rng.choice(kinds)
    sizes = [rng.randint(3, 14) for _ in range(rng.choice((1, 1, 2, 3)))]
    return " ".join("".join(rng.choice(pool) for _ in range(size)) for size in sizes)


def _rows(path: Path) -> Iterator[dict[str, object]]:
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)
