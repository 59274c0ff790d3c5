"""What special treatment of numbers, times and JSON could buy the decoder. (Decodable
Sentence-BERT, section 6.)

The paper plans a vocabulary for "numbers, special tokens and special formats (JSON, etc.)". A bound
by measurement: nothing is written. The same log lines are coded as they are and as the JSON objects
that a shipper makes of their fields, by the decoder and by the mixture codec, which is fitted to
the 800 lines before them in the same form. Where each one's bits go:

- *values*: bytes in numbers, times, dates, addresses and the like (``slots``);
- *syntax*: an object's keys, braces, quotes and commas;
- *slots*: every value at the least that its type allows, with nothing charged for saying that it is
  there; *slots or* takes the cheaper of the two value by value, as if that were known;
- *no syntax*: an object whose keys and order are known, so that its syntax costs nothing.

Bits of the decoder are of its whole distribution, from the vector of the chunk, a token's shared
evenly by its bytes.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studies.papers.combined import Reader
from studies.papers.kept import Figures, Kept, Parts, mean, table, with_interval
from studies.papers.slots import Costs, inside, slotted
from studies.quality.classification import Bench
from verso_codecs import mixture_fit
from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables

STUDY = "formats"
SYSTEMS = ("HDFS", "BGL", "OpenSSH", "Hadoop")
FORMS = ("line", "object")
KNOWN, LAST, RECORDS = 800, 1000, 40
_LEFT_OUT = ("LineId", "EventId", "EventTemplate", "Label")
_TINY = 1e-300


@dataclass(frozen=True)
class Record:
    """A log record.

    Attributes:
        text: Its bytes.
        syntax: Which of them are an object's syntax. Shape: (bytes,).
    """

    text: bytes
    syntax: NDArray[np.bool_]


def run(bench: Bench) -> Parts:
    """Measure every system in both forms."""
    kept = Kept(bench.work / "papers" / STUDY)
    return {
        f"{system}, {form}": kept.of(f"{system}, {form}", partial(_measured, bench, system, form))
        for system in SYSTEMS
        for form in FORMS
    }


def rendered(fields: Mapping[str, str]) -> Record:
    """Return a JSON object of a line's fields; whole numbers stand without quotes."""
    parts: list[tuple[str, bool]] = []
    for number, (name, value) in enumerate(fields.items()):
        parts.append((f"{', ' if number else '{'}{json.dumps(name)}: ", True))
        if value.isascii() and value.isdigit() and str(int(value)) == value:
            parts.append((value, False))
        else:
            parts += [('"', True), (json.dumps(value)[1:-1], False), ('"', True)]
    parts.append(("}", True))
    text = "".join(part for part, _ in parts).encode()
    flags = [np.full(len(part.encode()), syntax) for part, syntax in parts]
    return Record(text, np.concatenate(flags))


def records(root: Path, system: str, form: str) -> Iterator[Record]:
    """Yield a system's first lines in a form."""
    folder = root / "logs_loghub2k" / system
    if form == "line":
        lines = (folder / f"{system}_2k.log").read_text(encoding="utf-8").splitlines()
        for line in lines[:LAST]:
            yield Record(line.encode(), np.zeros(len(line.encode()), bool))
        return
    packed = (folder / f"{system}_2k.log_structured.csv.xz").read_bytes()
    rows = csv.DictReader(io.StringIO(lzma.decompress(packed).decode("utf-8"), newline=""))
    for number, row in enumerate(rows):
        if number == LAST:
            return
        yield rendered({name: value for name, value in row.items() if name not in _LEFT_OUT})


def decoder_costs(text: bytes, reader: Reader) -> Costs:
    """Return the decoder's bits of each byte, and last of its ends. Shape: (bytes + 1,)."""
    costs, ends = [], 0.0
    for ids, shares in reader.segments(text):
        own = -np.log2(np.clip(shares[np.arange(len(ids)), ids], _TINY, 1.0))
        ends -= float(np.log2(max(shares[len(ids), reader.eos], _TINY)))
        for token, bits in zip(ids, own, strict=True):
            size = len(reader.pieces[token])
            costs.append(np.full(size, bits / size))
    return np.concatenate([*costs, [ends]])


def mixture_costs(text: bytes, tables: MixtureTables) -> Costs:
    """Return the mixture's bits of each byte, and last of the end. Shape: (bytes + 1,)."""
    bits, chances = mixture_fit.decisions(text, tables.tables)
    chance = chances / 65_536.0
    costs = -np.log2(np.where(bits != 0, chance, 1.0 - chance))
    return np.append(costs[:-1].reshape(-1, 9).sum(1), costs[-1])


def _measured(bench: Bench, system: str, form: str) -> Figures:
    rows = list(records(bench.data, system, form))
    asked = rows[KNOWN:LAST][:: max(1, (LAST - KNOWN) // RECORDS)]
    general = NgramTables.load(bench.artifact / "ngram.npz")
    fitted = MixtureTables.fit([row.text for row in rows[:KNOWN]], general)
    found = {
        "records": float(len(asked)),
        "bytes": float(np.mean([len(row.text) for row in asked])),
    }
    for name, costs_of in (
        ("decoder", partial(decoder_costs, reader=Reader(bench.artifact))),
        ("mixture", partial(mixture_costs, tables=fitted)),
    ):
        found |= {f"{name}/{key}": value for key, value in spent(asked, costs_of).items()}
    return found


def spent(asked: Sequence[Record], costs_of: Callable[[bytes], Costs]) -> dict[str, float]:
    """Return bytes a record, and where they go, with intervals over the records."""
    bits: dict[str, list[float]] = {key: [] for key in _KEYS}
    for row in asked:
        costs = costs_of(row.text)
        always, either = slotted(row.text, costs)
        syntax = float(costs[:-1][row.syntax].sum())
        bits["all"].append(float(costs.sum()))
        bits["values"].append(float(costs[:-1][inside(row.text) & ~row.syntax].sum()))
        bits["syntax"].append(syntax)
        bits["slots"].append(always)
        bits["slots or"].append(either)
        bits["no syntax"].append(float(costs.sum()) - syntax)
    found: dict[str, float] = {}
    for name, own in bits.items():
        found |= mean(name, np.array(own) / 8)
    return found


def page(found: Parts) -> str:
    """Return the table, bytes a record."""
    columns = ["system, form", "bytes"]
    columns += [f"{codec}: {key}" if key == _KEYS[0] else key for codec in _CODECS for key in _KEYS]
    rows = [
        [name, f"{f['bytes']:.0f}", *(with_interval(f, f"{c}/{k}") for c in _CODECS for k in _KEYS)]
        for name, f in found.items()
    ]
    return table(columns, rows)


_CODECS = ("decoder", "mixture")
_KEYS = ("all", "values", "syntax", "slots", "slots or", "no syntax")
