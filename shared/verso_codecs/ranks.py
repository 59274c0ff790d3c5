"""The entropy layer of the neural codec: ranks of the true tokens among the decoder's logits.

Arithmetic coding with the model's own probabilities needs them equal to the last bit at both
ends, and no two machines compute the same. So the stream says which *rank* the true token has among
the logits (0 = the greatest), coded with static integer probabilities. Floats are only compared,
and no comparison is made where float noise could reverse it:

1. **Ranks.** The rank of the target is the number of greater logits. If any other logit lies
   within `epsilon` of the target's, or the rank exceeds MAX_RANK, an escape and the
   token itself are written instead. Noise of up to `epsilon / 2` on every logit keeps order.
2. **Buckets.** The probabilities depend on how sure the decoder is: `confidence` (log-odds of its
   top token) falls between two of the fitted edges. A confidence within `confidence_epsilon` of
   an edge might fall on the other side elsewhere. Each stream therefore chooses one of
   SHIFT_COUNT shifts of all edges, so that no position is near an edge if possible, and fewest if
   not, and starts with its number.
3. **Exceptions.** Positions still near an edge are listed: their number at the head of the
   stream, and the gap to the next one at the head and after each exception. There the
   token is written as after an escape, and the decoder does not look at the confidence.
4. **Context.** The second context is what happened at the previous position (start, rank 0,
   rank 1-3, rarer), which both sides know exactly.

A rank is a chain of binary decisions: is it 0? 1? 2? 3? an escape? then which of the bins 4-5,
6-9, 10-17, ... (Exp-Golomb), then its offset in the bin. An escaped token is narrowed down: some
low bits of its id are spelled out, and then its rank among the tokens that share them. There it
has few neighbours, hence a wide margin, and a small rank, and the logits still save most of the
literal's bits. Only if 10 bits do not help, the whole literal follows, as a walk down a binary
tree over token ids. All probabilities are fitted by counting and stored as 16-bit integers. The
end of the record is the end token, coded like any other; there is no length field.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verso_codecs import archive, coder
from verso_codecs.coder import STATE_SIZE, unread
from verso_codecs.rank_stream import fitting
from verso_codecs.rank_stream.layout import (
    CLASS_COUNT,
    ESCAPE,
    HEAD_SIZE,
    MAX_RANK,
    NARROW_COUNT,
    NARROW_RANKS,
    NODE_COUNT,
    SHIFT_COUNT,
    Floats,
    Ints,
)
from verso_codecs.rank_stream.literals import MAX_VOCAB, fit_tree, tree_size
from verso_codecs.rank_stream.measuring import ranks_of
from verso_codecs.rank_stream.reading import open_streams, step
from verso_codecs.rank_stream.writing import decisions_bound, put_stream
from verso_core.errors import ArtifactInvalid

__all__ = [
    "ESCAPE",
    "MAX_RANK",
    "Events",
    "RankTables",
    "Streams",
    "bits",
    "encode",
    "encode_events",
    "events",
]

_MEMBERS = ("edges", "shift_step", "shifts", "exceptions", "ranks", "narrow", "literals", "vocab")


@dataclass(frozen=True)
class Events:
    """One record's coding before any table is known; `RankTables.fit` counts it.

    rank_rows: Shape: (3, tokens), int32. First row: ranks 0..MAX_RANK, or ESCAPE where the margin
        is too small or the rank too great. Second: how many widths an escaped token passes over
        before it has a usable rank among the tokens that share its low bits, NARROW_COUNT for
        never. Third: that rank
    confidence: Shape: (tokens,), float32, log-odds of the top token
    tokens: Shape: (tokens,), int32, the targets, the end token last
    """

    rank_rows: Ints
    confidence: Floats
    tokens: Ints

    @property
    def ranks(self) -> Ints:
        """Ranks among all tokens. Shape: (tokens,)."""
        ranks: Ints = self.rank_rows[0]
        return ranks


@dataclass(frozen=True)
class RankTables:
    """Static probabilities of the rank stream.

    edges: Shape: (buckets - 1,), float32, ascending, log-odds
    shift_step: distance between neighbouring shifts of the edges, log-odds
    shifts: Shape: (SHIFT_COUNT - 1,), probability that the shift is a later one
    exceptions: Shape: (1,), probability that a stream has exceptions
    ranks: Shape: (buckets, CLASS_COUNT, NODE_COUNT), by bucket and class of the previous position
    narrow: Shape: (NARROW_COUNT, NARROW_RANKS), by width of the low bits: entry 0 that the token
        is narrowed down so far and no further, the others a tree over the ranks there
    literals: Shape: (tree_size(vocab),), branchings of the tree over token ids
    vocab: number of token ids that can be coded
    """

    edges: Floats
    shift_step: float
    shifts: NDArray[np.uint16]
    exceptions: NDArray[np.uint16]
    ranks: NDArray[np.uint16]
    narrow: NDArray[np.uint16]
    literals: NDArray[np.uint16]
    vocab: int

    def __post_init__(self) -> None:
        """Check shapes, types and ranges, so that no kernel can read out of bounds.

        Raises:
            ArtifactInvalid: naming the member that does not fit.
        """
        edges, vocab = self.edges, self.vocab
        _require(edges.dtype == np.float32 and edges.ndim == 1, "edges: expected float32 (E,)")
        _require(edges.size < 256, f"edges: expected fewer than 256, got {edges.size}")
        _require(bool(np.isfinite(edges).all()), "edges: expected finite values")
        _require(bool((np.diff(edges) > 0).all()), "edges: expected ascending values")
        _require(0.0 < self.shift_step < 10.0, f"shift_step: expected 0..10, got {self.shift_step}")
        _require(2 <= vocab <= MAX_VOCAB, f"vocab: expected 2..{MAX_VOCAB}, got {vocab}")
        _check_table("shifts", self.shifts, (SHIFT_COUNT - 1,))
        _check_table("exceptions", self.exceptions, (1,))
        _check_table("ranks", self.ranks, (edges.size + 1, CLASS_COUNT, NODE_COUNT))
        _check_table("narrow", self.narrow, (NARROW_COUNT, NARROW_RANKS))
        _check_table("literals", self.literals, (tree_size(vocab),))

    def save(self, path: Path) -> None:
        """Write the tables as one compressed npz file without pickles."""
        archive.write(path, {name: np.asarray(getattr(self, name)) for name in _MEMBERS})

    @classmethod
    def load(cls, path: Path) -> "RankTables":
        """Read tables written by `save`.

        Raises:
            ArtifactInvalid: when the file is missing, damaged or does not fit.
        """
        members: dict[str, Any] = archive.read(path, _MEMBERS)
        for name in ("shift_step", "vocab"):
            members[name] = archive.number(members[name], name)
        members["vocab"] = int(members["vocab"])
        return cls(**members)

    @classmethod
    def fit(
        cls,
        records: Iterable[Events],
        *,
        vocab: int,
        confidence_epsilon: float,
        bucket_count: int = 12,
    ) -> "RankTables":
        """Count the events of texts that the decoder was not trained on.

        records: the `events` of each record
        confidence_epsilon: distance from an edge that counts as unsafe, as in `encode`
        """
        counted = list(records)
        ranks = np.concatenate([np.empty(0, np.int32), *(record.ranks for record in counted)])
        tokens = np.concatenate([np.empty(0, np.int32), *(record.tokens for record in counted)])
        confidence = np.concatenate(
            [np.empty(0, np.float32), *(record.confidence for record in counted)]
        )
        edges = fitting.fit_edges(confidence, ranks, bucket_count)
        # Wide enough that the unsafe zones of neighbouring shifts never touch.
        shift_step = max(8.0 * confidence_epsilon, 1e-3)
        shifts, exceptions, narrow, nodes = fitting.count_nodes(
            [(record.rank_rows, record.confidence, record.tokens) for record in counted],
            edges,
            shift_step=shift_step,
            confidence_epsilon=confidence_epsilon,
        )
        return cls(
            edges=edges,
            shift_step=shift_step,
            shifts=fitting.smoothed(shifts),
            exceptions=fitting.smoothed(exceptions),
            ranks=fitting.rank_probabilities(nodes),
            narrow=fitting.smoothed(narrow),
            literals=fit_tree(fitting.literal_weights(ranks, tokens, vocab)),
            vocab=vocab,
        )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ArtifactInvalid(f"rank tables: {message}")


def _check_table(name: str, table: NDArray[np.uint16], shape: tuple[int, ...]) -> None:
    fits = table.dtype == np.uint16 and table.shape == shape
    _require(fits, f"{name}: expected uint16 {shape}, got {table.dtype} {table.shape}")
    _require(bool((table > 0).all()), f"{name}: expected probabilities above 0")


def events(
    logits: Floats, confidence: Floats, *, targets: NDArray[np.integer], epsilon: float
) -> Events:
    """Return the ranks and escapes of one record's teacher-forced pass.

    logits: Shape: (tokens, vocab), float32
    confidence: Shape: (tokens,), float32, log-odds of the top token
    targets: Shape: (tokens,), the true tokens, the end token last
    epsilon: a rank is used only if no other logit lies this near, logits
    """
    tokens = np.ascontiguousarray(targets, np.int32)
    rows = np.ascontiguousarray(logits, np.float32)
    if rows.ndim != 2 or tokens.shape != rows.shape[:1] or confidence.shape != tokens.shape:
        raise ValueError(
            f"expected logits (T, V), confidence (T,), targets (T,), "
            f"got {rows.shape}, {confidence.shape}, {tokens.shape}"
        )
    if tokens.size and not 0 <= int(tokens.min()) <= int(tokens.max()) < rows.shape[1]:
        raise ValueError(f"expected targets in 0..{rows.shape[1] - 1}")
    rank_rows = np.empty((3, tokens.size), np.int32)
    ranks_of(rows, tokens, epsilon, rank_rows)
    return Events(rank_rows, np.ascontiguousarray(confidence, np.float32), tokens)


def encode_events(record: Events, tables: RankTables, *, confidence_epsilon: float) -> bytes:
    """Return the payload of events; the second half of `encode`."""
    return coder.encode(*_decisions(record, tables, confidence_epsilon))


def bits(record: Events, tables: RankTables, *, confidence_epsilon: float) -> float:
    """Return the ideal code length of a record in bits, for evaluation."""
    return coder.cost(*_decisions(record, tables, confidence_epsilon))


def encode(
    logits: Floats,
    confidence: Floats,
    *,
    targets: NDArray[np.integer],
    tables: RankTables,
    epsilon: float,
    confidence_epsilon: float,
) -> bytes:
    """Return the payload of one record.

    logits: Shape: (tokens, vocab), float32; row t was computed from the targets before t
    confidence: Shape: (tokens,), float32, log-odds of the top token
    targets: Shape: (tokens,), the true tokens, the end token last
    epsilon: noise of up to half of it on every logit does no harm, logits
    confidence_epsilon: likewise for the confidence, log-odds
    """
    record = events(logits, confidence, targets=targets, epsilon=epsilon)
    return encode_events(record, tables, confidence_epsilon=confidence_epsilon)


def _decisions(
    record: Events, tables: RankTables, confidence_epsilon: float
) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    if record.tokens.size and int(record.tokens.max()) >= tables.vocab:
        raise ValueError(f"expected tokens below {tables.vocab}, got {record.tokens.max()}")
    bound = decisions_bound(record.tokens.size)
    decided, chances = np.empty(bound, np.uint8), np.empty(bound, np.uint16)
    length = put_stream(
        record.rank_rows,
        record.confidence,
        record.tokens,
        tables.edges,
        tables.shift_step,
        tables.shifts,
        tables.exceptions,
        tables.ranks,
        tables.narrow,
        tables.literals,
        tables.vocab,
        confidence_epsilon,
        decided,
        chances,
    )
    return decided[:length], chances[:length]


class Streams:
    """Payloads being decoded side by side, one token a step.

    A corrupt payload decodes to some tokens of the vocabulary, possibly without end: the caller
    bounds their number and compares the text's checksum.
    """

    def __init__(self, payloads: Sequence[bytes], tables: RankTables) -> None:
        """Read the head of every payload; stream i belongs to `payloads[i]`."""
        self._tables = tables
        self._payload = np.frombuffer(b"".join(payloads) or b"\0", np.uint8)
        bounds = np.cumsum([0, *(len(payload) for payload in payloads)], dtype=np.int64)
        self._states = np.zeros((len(payloads), STATE_SIZE), np.int64)
        self._heads = np.zeros((len(payloads), HEAD_SIZE), np.int64)
        open_streams(
            self._states, self._heads, self._payload, bounds, tables.shifts, tables.exceptions
        )

    def __len__(self) -> int:
        return self._states.shape[0]

    def step(self, rows: Ints, logits: Floats, confidence: Floats) -> Ints:
        """Decode the next token of each stream named in `rows`.

        rows: Shape: (n,), int32, indices of streams, none twice
        logits: Shape: (n, vocab), float32, the decoder's output for the next position of each
        confidence: Shape: (n,), float32, log-odds of the top token
        Returns: Shape: (n,), int32
        """
        rows = np.ascontiguousarray(rows, np.int32)
        if logits.shape != (rows.size, self._tables.vocab) or confidence.shape != rows.shape:
            raise ValueError(
                f"expected logits ({rows.size}, {self._tables.vocab}) and confidence "
                f"({rows.size},), got {logits.shape} and {confidence.shape}"
            )
        if rows.size and not 0 <= int(rows.min()) <= int(rows.max()) < len(self):
            raise IndexError(f"expected rows in 0..{len(self) - 1}")
        tokens = np.empty(rows.size, np.int32)
        step(
            rows,
            np.ascontiguousarray(logits, np.float32),
            np.ascontiguousarray(confidence, np.float32),
            self._states,
            self._heads,
            self._payload,
            self._tables.edges,
            self._tables.shift_step,
            self._tables.ranks,
            self._tables.narrow,
            self._tables.literals,
            tokens,
        )
        return tokens

    def unread(self, row: int) -> int:
        """Count trailing payload bytes that no encoder would have written; > 0 means corrupt."""
        return unread(self._states[row])
