"""The model as one object: what the engine process serves, and what benches call directly."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from verso_codecs.ranks import RankTables
from verso_core import tracing
from verso_core.errors import Cancelled, EngineUnavailable, VectorInvalid
from verso_worker.engine.batching import BATCH_ROWS, ENCODE_BUDGET
from verso_worker.engine.coding import Codable, Coder, Prober
from verso_worker.engine.decoder import Decoder
from verso_worker.engine.encoder import Encoder, Precision
from verso_worker.engine.guessing import Guesser
from verso_worker.engine.lanes import Lane
from verso_worker.engine.reading import Checker, Draft, Noise, Reader
from verso_worker.engine.vocabulary import Vocabulary
from verso_worker.records.outputs import Predicted
from verso_worker.records.recorder import Encoded, Guess

CODE_BUDGET = 1024
"""Tokens of a coding batch: 32 MB of logits with a vocabulary of 8192."""

CHECK_BUDGET = 768
"""Tokens of a checking batch: unlike coding, so that texts are checked in another shape."""

PADDING = 32
"""Most padding of a batch, tokens: about what a run costs before its first token (2.6 ms with the
encoder on one core, at 0.12 ms a token), so that neither many runs nor long padding cost more."""

QUICK_ROWS = 16
"""Reads of at most so many records have a decoding loop of their own.

A step with 64 rows takes some ten times as long as one with a single row, and a record takes a
hundred steps: in one loop with a bulk verify, opening one document would take a second.
"""

VECTOR_MAX = 16.0
"""Greatest number a vector may hold; a unit vector's are within 1.

No store holds a vector with a larger number. A NaN, or a number whose square overflows, would stay
in the decoder's cache and spoil the record that is read at the same index next.
"""

_CODE_THREADS = 2  # the ranks of one batch are written while the graph runs the next


class Service:
    """Encodes, codes, reads and guesses for any number of threads at once.

    The texts of a call are tokenised in the calling thread, so that the next batch is prepared
    while one runs. In a trace a call has the spans "tokenize" and "infer"; the time that a text
    waits for its batch is part of "infer".
    """

    def __init__(
        self, encoder: Encoder, decoder: Decoder, *, vocabulary: Vocabulary, tables: RankTables
    ) -> None:
        self._encoder = encoder
        self._vocabulary = vocabulary
        self._dim = decoder.dim
        self._eos = decoder.codec.eos
        encode: Callable[..., Lane[list[int], NDArray[np.float32]]] = partial(
            Lane,
            run=lambda batch: list(encoder.run(batch)),
            budget=ENCODE_BUDGET,
            rows=BATCH_ROWS,
            padding=PADDING,
            threads=encoder.lanes,
        )
        # What fits one batch, a question for example, has a lane of its own: it waits for no batch
        # of an ingest, whose threads let this lane's go first.
        self._bulk_encode = encode("encode", yields=True)
        self._quick_encode = encode("encode_quick")
        self._code: Lane[Codable, bytes] = Lane(
            "code",
            Coder(decoder, tables).run,
            budget=CODE_BUDGET,
            rows=BATCH_ROWS,
            padding=PADDING,
            threads=_CODE_THREADS,
            yields=True,
        )
        self._check: Lane[Draft, bool] = Lane(
            "check",
            Checker(decoder, tables, Noise(decoder.codec)).run,
            budget=CHECK_BUDGET,
            rows=BATCH_ROWS,
            padding=PADDING,
            yields=True,
        )
        self._probe: Lane[Codable, list[int]] = Lane(
            "probe", Prober(decoder).run, budget=CODE_BUDGET, rows=BATCH_ROWS, padding=PADDING
        )
        self._bulk_reader = Reader(decoder, tables, vocabulary, rows=BATCH_ROWS)
        self._quick_reader = Reader(decoder, tables, vocabulary, rows=QUICK_ROWS)
        self._guesser = Guesser(decoder, vocabulary)

    @property
    def precision(self) -> Precision:
        """What the encoder computes in."""
        return self._encoder.precision

    def encode(self, texts: Sequence[bytes]) -> Encoded:
        """Return each text's vector; text beyond the encoder's window is ignored.

        Raises:
            EngineUnavailable: a batch failed.
        """
        with tracing.inner("tokenize"):
            cut = self._encoder.cut(texts)
        tokens = [one.ids for one in cut]
        sizes = [len(ids) for ids in tokens]
        lane = self._quick_encode if sum(sizes) <= ENCODE_BUDGET else self._bulk_encode
        with tracing.inner("infer"):
            rows = lane.submit(tokens, sizes)
        vectors = np.empty((len(texts), self._dim), np.float32)
        for index, row in enumerate(rows):
            if isinstance(row, Exception):
                raise EngineUnavailable("the encoder failed on a text") from row
            vectors[index] = row
        return Encoded(vectors, sizes, [one.truncated for one in cut])

    def code(self, texts: Sequence[bytes], vectors: NDArray[np.float32]) -> list[bytes | None]:
        """Code each text against its stored, widened vector; None where the decoder cannot.

        Args:
            texts: any bytes; a text that is not UTF-8 or longer than a record is not coded.
            vectors: Shape: (texts, D), float32.

        Raises:
            VectorInvalid: the vectors have another shape.
        """
        works = self._codable(texts, vectors)
        with tracing.inner("infer"):
            found = self._code.submit(*_with_costs(works))
        payloads: list[bytes | None] = [None] * len(texts)
        for index, payload in zip(works, found, strict=True):
            # A text on which the graph fails is a text the decoder cannot code.
            payloads[index] = None if isinstance(payload, Exception) else payload
        return payloads

    def read(
        self,
        payloads: Sequence[bytes],
        vectors: NDArray[np.float32],
        *,
        disturbed: bool = False,
        drafts: Sequence[bytes] | None = None,
    ) -> list[bytes | None]:
        """Decode each payload against its vector; None for one that is no payload of this model.

        Args:
            payloads: any bytes.
            vectors: stored, widened. Shape: (payloads, D), float32.
            disturbed: move logits and confidences by up to half the margin of the coder. The shape
                of the batch differs from the coder's in any case: one token for each row here,
                whole records there.
            drafts: the expected text of each payload. They do not change the result: a right draft
                is confirmed in one pass of the decoder instead of one for each token.

        Raises:
            VectorInvalid: the vectors have another shape.
            EngineUnavailable: a step of the decoder failed.
        """
        vectors = self._checked(vectors, count=len(payloads))
        texts: list[bytes | None] = [None] * len(payloads)
        indices = np.flatnonzero(_usable(vectors)).tolist()
        if drafts is not None:
            confirmed = self._confirmed(
                [(payloads[index], vectors[index], drafts[index]) for index in indices],
                disturbed=disturbed,
            )
            for index, right in zip(indices, confirmed, strict=True):
                texts[index] = drafts[index] if right else None
            indices = [index for index in indices if texts[index] is None]
        reader = self._quick_reader if len(indices) <= QUICK_ROWS else self._bulk_reader
        with tracing.inner("infer"):
            try:
                found = reader.read(
                    [payloads[index] for index in indices], vectors[indices], disturbed=disturbed
                )
            except Cancelled:
                raise
            except Exception as exc:
                raise EngineUnavailable("the decoder failed on a batch") from exc
        for index, text in zip(indices, found, strict=True):
            texts[index] = text
        return texts

    def _confirmed(
        self, expected: Sequence[tuple[bytes, NDArray[np.float32], bytes]], *, disturbed: bool
    ) -> list[bool]:
        """Return for each payload, vector and draft whether the payload decodes to the draft."""
        with tracing.inner("tokenize"):
            tokens = self._vocabulary.tokenise([draft for _, _, draft in expected])
        works = [
            Draft(payload, vector, ids, disturbed)
            for (payload, vector, _), ids in zip(expected, tokens, strict=True)
            if ids is not None
        ]
        with tracing.inner("infer"):
            found = iter(self._check.submit(works, [len(work.tokens) + 1 for work in works]))
        # A draft on which the graph failed is not confirmed; the decoding loop raises the error.
        return [ids is not None and next(found) is True for ids in tokens]

    def guess(self, vectors: NDArray[np.float32], *, beam: int, max_tokens: int) -> list[Guess]:
        """Decode each vector with no patch at all. Shape: (n, D), float32.

        Of the texts found the one whose own vector is nearest is returned: the decoder's confidence
        does not follow the quality of a guess, that cosine does.

        Raises:
            VectorInvalid: the vectors have another shape, or numbers that no unit vector has.
            RequestInvalid: `beam` or `max_tokens` is out of its range.
        """
        vectors = self._checked(vectors, count=len(vectors))
        if not _usable(vectors).all():
            raise VectorInvalid(f"expected numbers within +-{VECTOR_MAX:g}, got others or NaN")
        with tracing.inner("infer"):
            found = self._guesser.guess(vectors, beam=beam, max_tokens=max_tokens)
        encoded = self.encode([one.text for own in found for one in own]).vectors
        nearest, at = [], 0
        for vector, own in zip(vectors, found, strict=True):
            cosines = encoded[at : at + len(own)] @ vector / max(1e-9, np.linalg.norm(vector))
            at += len(own)
            best = int(cosines.argmax())
            nearest.append(replace(own[best], cosine=float(cosines[best])))
        return nearest

    def probe(self, texts: Sequence[bytes], vectors: NDArray[np.float32]) -> list[tuple[int, int]]:
        """Count right first guesses and tokens of each text; (0, 0) where it cannot be read.

        Args:
            texts: any bytes; a text that is not UTF-8 or longer than a record cannot be read.
            vectors: Shape: (texts, D), float32.

        Raises:
            VectorInvalid: the vectors have another shape.
        """
        probed = [(0, 0)] * len(texts)
        for index, (tokens, guesses) in self._guessed(texts, vectors).items():
            right = sum(map(operator.eq, [*tokens, self._eos], guesses))
            probed[index] = (right, len(guesses))
        return probed

    def predict(
        self, texts: Sequence[bytes], vectors: NDArray[np.float32]
    ) -> list[list[Predicted] | None]:
        """Return the tokens of each text, each with the decoder's first guess of it.

        A guess is made from the vector and the true tokens before it, as where a payload is
        decoded; None where the text cannot be read, as in :meth:`probe`.

        Raises:
            VectorInvalid: the vectors have another shape.
        """
        found: list[list[Predicted] | None] = [None] * len(texts)
        for index, (tokens, guesses) in self._guessed(texts, vectors).items():
            found[index] = [
                Predicted(self._piece(token), self._piece(guess))
                for token, guess in zip(tokens, guesses[:-1], strict=True)
            ]
        return found

    def _piece(self, token: int) -> bytes:
        return self._vocabulary.text([token]) or b""

    def _guessed(
        self, texts: Sequence[bytes], vectors: NDArray[np.float32]
    ) -> dict[int, tuple[list[int], list[int]]]:
        """Return the tokens and the first guesses of each text that can be read."""
        works = self._codable(texts, vectors)
        found = self._probe.submit(*_with_costs(works))
        return {
            index: (work.tokens, guesses)
            for (index, work), guesses in zip(works.items(), found, strict=True)
            if not isinstance(guesses, Exception)
        }

    def figures(self) -> dict[str, dict[str, float]]:
        """Return the counts of each lane since the start, by the lane's name."""
        return {
            "encode": self._bulk_encode.figures(),
            "encode_quick": self._quick_encode.figures(),
            "code": self._code.figures(),
            "check": self._check.figures(),
            "read": self._bulk_reader.figures(),
            "read_quick": self._quick_reader.figures(),
        }

    def close(self) -> None:
        """Finish the waiting texts and end the lanes."""
        self._probe.close()
        self._bulk_encode.close()
        self._quick_encode.close()
        self._code.close()
        self._check.close()
        self._bulk_reader.close()
        self._quick_reader.close()

    def _codable(self, texts: Sequence[bytes], vectors: NDArray[np.float32]) -> dict[int, Codable]:
        """Return the texts that the decoder can take, by their index."""
        vectors = self._checked(vectors, count=len(texts))
        usable = _usable(vectors)
        with tracing.inner("tokenize"):
            tokens = self._vocabulary.tokenise(texts)
        return {
            index: Codable(ids, vectors[index])
            for index, ids in enumerate(tokens)
            if ids is not None and usable[index]
        }

    def _checked(self, vectors: NDArray[np.float32], *, count: int) -> NDArray[np.float32]:
        if count == 0:
            return np.empty((0, self._dim), np.float32)
        if vectors.shape != (count, self._dim):
            raise VectorInvalid(f"expected shape {(count, self._dim)}, got {vectors.shape}")
        return np.ascontiguousarray(vectors, np.float32)


def _with_costs(works: Mapping[int, Codable]) -> tuple[list[Codable], list[int]]:
    """Return works with the tokens that each costs, the end token included."""
    return list(works.values()), [len(work.tokens) + 1 for work in works.values()]


def _usable(vectors: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return which rows the decoder may see. Shape: (n, D) -> (n,), bool."""
    usable: NDArray[np.bool_] = np.all(np.abs(vectors) <= VECTOR_MAX, axis=1)  # NaN <= is False
    return usable
