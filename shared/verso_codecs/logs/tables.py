"""What blocks are coded with: a model that has learnt from lines of the collection.

A generation of tables is a sample of the collection's lines, coded one after the other from a model
that knows nothing. Whoever unpacks it decodes the lines, and the model that has then learnt from
them is the one with which every block of the generation begins. So the tables take as few bytes as
the lines they were learnt from, and need no form of their own. Generation 0 has learnt nothing.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from verso_codecs import coder
from verso_codecs.logs import model as models
from verso_codecs.logs.memory import (
    COUNT,
    RULES,
    RULES_1,
    RULES_2,
    TEXT_END,
    Memory,
    new_memory,
    remember,
    restore,
)
from verso_codecs.logs.model import Model, new_model
from verso_codecs.logs.parsing import UUID_BYTES, Lines, Parsed, Slots, parse
from verso_codecs.logs.shapes import Shapes
from verso_codecs.logs.values import code_lines
from verso_core.errors import ArtifactInvalid

FORMAT = RULES_2
"""Version of the rules that the sample is coded by; those of the first are read too."""

LIMIT_BYTES = 8192
"""Most bytes of packed tables unless the caller says otherwise."""

LEARNT_SHARE = 1 / 32
"""Most bytes of packed tables for each byte of lines that they could learn from: tables of a small
collection are small, and are fitted again when it has grown."""

MAX_LINES = 4096
"""Most lines that are learnt from; each takes 10 to 50 us when tables are unpacked."""

_MAX_LINE_BYTES = 2048
_RUN = 32  # lines of the sample that follow one another
_HEAD_BYTES, _DIGEST_BYTES = 17, 8
_MAX_SIZE_BYTES = 1 << 26
_TRIES = 4
_KEPT_VALUES = 1 << 18
_NO_SLOTS = Slots(np.zeros(0, np.uint8), *(np.zeros(0, np.int64) for _ in range(4)))
_NO_BYTES = np.zeros(0, np.uint8)


class Work(NamedTuple):
    """A model and a memory that one block is coded with."""

    model: Model
    memory: Memory


def _empty(size_bytes: int) -> Work:
    return Work(new_model(), new_memory(size_bytes, size_bytes + UUID_BYTES))


def _restored(work: Work, base: Work) -> Work:
    np.copyto(work.model.counters, base.model.counters)
    np.copyto(work.model.weights, base.model.weights)
    restore(work.memory, base.memory)
    return work


def write_lines(
    work: Work, parsed: Parsed, shapes: Shapes, shape_count: int, *, first: int, count: int
) -> bytes:
    """Return the payload of lines, by the second rules, from which `work` has learnt."""
    work.memory.state[RULES] = RULES_2
    lines = parsed.lines
    size = int((lines.ends[first : first + count] - lines.begins[first : first + count]).sum())
    # No decision takes more than 12 bits: this is more than any lines can take. Unused pages cost
    # nothing.
    out = np.empty(32 * size + 64 * count + 1024, np.uint8)
    models.open_output(work.model.state)
    model = work.model._replace(data=out)
    numbers = parsed.shapes[first : first + count].copy()
    slot = int(parsed.slot_bounds[first])
    length = code_lines(
        model,
        work.memory,
        shapes.table,
        shape_count,
        numbers,
        parsed.slots,
        slot,
        lines.data,
        _NO_BYTES,
        np.zeros(0, np.int64),
    )
    assert length >= 0, "the output is long enough"
    return out[:length].tobytes()


def read_lines(
    work: Work,
    payload: bytes,
    shapes: Shapes,
    shape_count: int,
    *,
    count: int,
    size_bytes: int,
    rules: int,
) -> tuple[Lines, npt.NDArray[np.int32]] | None:
    """Return the lines of a payload and their shapes, or None when it cannot be right.

    There is a line feed after each line.

    size_bytes: of the lines with their line feeds
    rules: by which they were written
    """
    work.memory.state[RULES] = rules
    data = np.frombuffer(bytearray(payload or b"\0"), np.uint8)
    coder.open_payload(work.model.state, data, 0, len(payload))
    work.model.state[models.MODE] = models.DECODE
    out, ends = np.empty(size_bytes + models.SLACK_BYTES, np.uint8), np.zeros(count, np.int64)
    numbers = np.zeros(count, np.int32)
    length = code_lines(
        work.model._replace(data=data),
        work.memory,
        shapes.table,
        shape_count,
        numbers,
        _NO_SLOTS,
        0,
        _NO_BYTES,
        out,
        ends,
    )
    if length != size_bytes:
        return None
    begins = np.zeros(count, np.int64)
    begins[1:] = ends[:-1] + 1
    return Lines(out[:size_bytes], begins, ends), numbers


class Tables:
    """The tables of one generation; several threads may use them at once."""

    def __init__(self, generation: int, base: Work, packed: bytes) -> None:
        self.generation = generation
        self._base = base
        self._packed = packed
        self._idle: list[Work] = []

    @classmethod
    def builtin(cls) -> "Tables":
        """Return generation 0, which needs no lines."""
        return cls(0, _empty(1), b"")

    @classmethod
    def fit(
        cls,
        parsed: Sequence[Parsed],
        shapes: Shapes,
        *,
        generation: int,
        limit_bytes: int | None = None,
    ) -> "Tables":
        """Learn from lines: the last ones, and runs of those before.

        parsed: numbered, in the order in which the lines were written
        generation: above 0
        limit_bytes: most bytes of the packed tables, by default by LIMIT_BYTES and LEARNT_SHARE
        """
        if not 0 < generation < 1 << 32:
            raise ValueError(f"expected a generation from 1, got {generation}")
        if limit_bytes is None:
            learnt = sum(int((part.lines.ends - part.lines.begins).sum()) for part in parsed)
            limit_bytes = min(LIMIT_BYTES, int(LEARNT_SHARE * learnt))
        wanted = MAX_LINES
        for _ in range(_TRIES):
            sample = _parsed_sample(parsed, shapes, wanted)
            packed, base = _learn(sample, shapes, generation)
            if len(packed) <= limit_bytes:
                break
            wanted = min(wanted, sample.count) * limit_bytes // len(packed) * 15 // 16
        else:
            packed, base = _learn(_parsed_sample(parsed, shapes, 0), shapes, generation)
        return cls(generation, base, packed)

    def pack(self) -> bytes:
        """Return the bytes from which `unpack` restores the tables; empty for generation 0."""
        return self._packed

    @classmethod
    def unpack(cls, packed: bytes, shapes: Shapes) -> "Tables":
        """Restore tables.

        shapes: the collection's, at least as many as when the tables were fitted

        Raises:
            ArtifactInvalid: when the bytes are damaged or of another version.
        """
        if not packed:
            return cls.builtin()
        if packed[0] not in (RULES_1, RULES_2) or len(packed) < _HEAD_BYTES + _DIGEST_BYTES:
            raise ArtifactInvalid(f"tables of lines: expected format 1 or 2, got {packed[0]}")
        body = packed[:-_DIGEST_BYTES]
        if _digest(body) != packed[-_DIGEST_BYTES:]:
            raise ArtifactInvalid("tables of lines: expected another digest")
        generation, shape_count, count, size_bytes = (
            int(number) for number in np.frombuffer(body, "<u4", 4, 1)
        )
        if shape_count > len(shapes) or size_bytes > _MAX_SIZE_BYTES:
            raise ArtifactInvalid(f"tables of lines: expected {shape_count} shapes at least")
        work = _empty(size_bytes + count)
        read = read_lines(
            work,
            body[_HEAD_BYTES:],
            shapes,
            shape_count,
            count=count,
            size_bytes=size_bytes,
            rules=packed[0],
        )
        if read is None:
            raise ArtifactInvalid("tables of lines: expected lines of these shapes")
        return cls(generation, work, packed)

    def borrow(self, size_bytes: int) -> Work:
        """Return a model for a block of so many bytes; give it back afterwards, or do not."""
        base = self._base.memory
        needed = int(base.state[COUNT]) + size_bytes + 2
        text = int(base.state[TEXT_END]) + size_bytes + UUID_BYTES
        work: Work | None
        try:
            work = self._idle.pop()
        except IndexError:  # all are at work
            work = None
        if work is None or work.memory.numbers.size < needed or work.memory.text.size < text:
            memory = new_memory(max(needed, 1 << 15), max(text, 1 << 16))
            remember(memory, base)
            work = Work(new_model(), memory)
        return _restored(work, self._base)

    def give_back(self, work: Work) -> None:
        """Keep a model for the next block."""
        if work.memory.numbers.size <= _KEPT_VALUES:
            self._idle.append(work)


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()


def _learn(sample: Parsed, shapes: Shapes, generation: int) -> tuple[bytes, Work]:
    """Return packed tables and the model that has learnt from the sample."""
    lines = sample.lines
    size = int((lines.ends - lines.begins).sum()) + sample.count
    work = _empty(size + sample.count)
    shape_count = int(sample.shapes.max()) + 1 if sample.count else 0
    payload = write_lines(work, sample, shapes, shape_count, first=0, count=sample.count)
    head = np.array([generation, shape_count, sample.count, size], "<u4").tobytes()
    body = bytes([FORMAT]) + head + payload
    return body + _digest(body), work


def _parsed_sample(parsed: Sequence[Parsed], shapes: Shapes, wanted: int) -> Parsed:
    """Choose lines: the last ones for one half, and runs of those before for the other."""
    bounds = np.cumsum([0, *(part.count for part in parsed)])
    chosen = []
    for number in _chosen(int(bounds[-1]), wanted):
        part = int(np.searchsorted(bounds, number, side="right")) - 1
        at = int(number - bounds[part])
        lines = parsed[part].lines
        if parsed[part].shapes[at] >= 0 and lines.ends[at] - lines.begins[at] <= _MAX_LINE_BYTES:
            chosen.append(lines.line(at))
    sizes = np.array([len(line) for line in chosen], np.int64)
    ends = np.cumsum(sizes)
    data = np.frombuffer(bytearray(b"".join(chosen)), np.uint8)
    sample = parse(Lines(data, ends - sizes, ends), shapes)
    if sample.new_rows:
        raise ValueError("expected lines whose shapes are in the table")
    return sample


def _chosen(total: int, wanted: int) -> npt.NDArray[np.int64]:
    if total <= wanted:
        return np.arange(total)
    last = wanted // 2
    runs = max(0, math.floor((wanted - last) / _RUN))
    spread = np.linspace(0, total - last - _RUN, runs).astype(np.int64)
    numbers = [np.arange(begin, begin + _RUN) for begin in spread]
    return np.unique(np.concatenate([*numbers, np.arange(total - last, total)])).astype(np.int64)
