"""Vectors alone to likely texts: greedy decoding, or beam search.

Beam search keeps the `beam` likeliest prefixes of a text. A finished text is scored by the mean of
its tokens' log-probabilities (Wu et al. 2016, eq. 14 with alpha = 1): by their sum alone every
short text would beat every long one. With ``beam=1`` this is greedy decoding.

A free-running decoder falls into loops (Holtzman et al. 2020, section 4). So no sequence of
``NO_REPEAT`` tokens occurs twice in a guess (Paulus et al. 2017, section 2.5). Where only that is
forbidden, the decoder spells the same words by other tokens, so no sequence of as many words,
between white space, occurs twice either. Coded texts have no such rule: their tokens are known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_core.errors import RequestInvalid
from verso_worker.engine.decoder import Cache, Decoder, Scores
from verso_worker.engine.vocabulary import Vocabulary
from verso_worker.ipc.server import check_caller
from verso_worker.records.recorder import Guess

BEAM_MAX = 16
NO_REPEAT = 4
"""Tokens, and words, of a sequence that does not occur twice: an address repeats shorter ones,
"0.0.0.0"."""


@dataclass(frozen=True, slots=True)
class _Prefix:
    """A prefix: its tokens and the natural log-probability of each, the end token included."""

    tokens: tuple[int, ...] = ()
    logs: tuple[float, ...] = ()

    @property
    def mean(self) -> float:
        return sum(self.logs) / max(1, len(self.logs))

    def extended(self, token: int, log: float) -> _Prefix:
        return _Prefix((*self.tokens, token), (*self.logs, log))


class Guesser:
    """Guesses texts for one vector after another; concurrent callers take turns."""

    def __init__(self, decoder: Decoder, vocabulary: Vocabulary) -> None:
        self._decoder = decoder
        self._vocabulary = vocabulary
        self._cache = Cache(decoder, BEAM_MAX)
        self._turn = threading.Lock()

    def guess(
        self, vectors: NDArray[np.float32], *, beam: int, max_tokens: int
    ) -> list[list[Guess]]:
        """Return the likeliest texts found for each vector, best first, at most ``beam``.

        Args:
            vectors: stored, widened. Shape: (n, D), float32.
            beam: prefixes kept, 1..BEAM_MAX.
            max_tokens: longest text, tokens; limited to the length of a record.

        Raises:
            RequestInvalid: `beam` or `max_tokens` is out of its range.
            Cancelled: the caller of the running handler hung up.
        """
        if not 1 <= beam <= BEAM_MAX:
            raise RequestInvalid(f"expected beam 1..{BEAM_MAX}, got {beam}")
        if max_tokens < 1:
            raise RequestInvalid(f"expected max_tokens >= 1, got {max_tokens}")
        limit = min(max_tokens, self._decoder.codec.max_tokens - 1)
        found = []
        for vector in vectors:
            with self._turn:  # for one vector: those of other callers come in between
                best = self._search(vector, beam=beam, limit=limit)
                found.append([self._finished(one) for one in best])
        return found

    def _search(self, vector: NDArray[np.float32], *, beam: int, limit: int) -> list[_Prefix]:
        codec = self._decoder.codec
        self._cache.clear()
        self._cache.add(self._decoder.memory(vector[None]))
        live, last = [_Prefix()], [codec.bos]
        done: list[_Prefix] = []
        for _ in range(limit):
            check_caller()
            logs = _log_softmax(self._cache.step(np.array(last)), never=codec.bos)
            for row, text in enumerate(live):
                logs[row, _repeating(text.tokens)] = -np.inf
            grown = _grown(live, logs, count=2 * beam, loops=self._loops)
            done += [text for _, token, text in grown[:beam] if token == codec.eos]
            going = [step for step in grown if step[1] != codec.eos][:beam]
            # A live text's mean can still rise, but rarely past as many finished ones as the beam.
            if len(done) >= beam:
                return _best(done, count=beam)
            self._cache.arrange([row for row, _, _ in going])
            live, last = [text for _, _, text in going], [token for _, token, _ in going]
        return _best(done + live, count=beam)

    def _loops(self, tokens: Sequence[int]) -> bool:
        return repeats_words(self._text(tokens))

    def _text(self, tokens: Sequence[int]) -> bytes:
        if tokens and tokens[-1] == self._decoder.codec.eos:
            tokens = tokens[:-1]
        return self._vocabulary.text(tokens) or b""

    def _finished(self, found: _Prefix) -> Guess:
        return Guess(
            text=self._text(found.tokens),
            log_probability=found.mean,
            confidence=float(np.mean(np.exp(found.logs))),
        )


def _best(texts: Sequence[_Prefix], *, count: int) -> list[_Prefix]:
    return sorted(texts, key=lambda text: text.mean, reverse=True)[:count]


def _repeating(tokens: Sequence[int]) -> list[int]:
    """Return the tokens that would end a sequence of ``NO_REPEAT`` which was there before."""
    before = NO_REPEAT - 1
    if len(tokens) < NO_REPEAT:
        return []
    last = tuple(tokens[-before:])
    return [
        tokens[at + before]
        for at in range(len(tokens) - before)
        if tuple(tokens[at : at + before]) == last
    ]


def repeats_words(text: bytes) -> bool:
    """Whether the last ``NO_REPEAT`` words, the very last perhaps unfinished, stood there before.

    Asked of every prefix of a text, it tells of every sequence of words that occurs twice.
    """
    words = text.split()
    if len(words) <= NO_REPEAT:
        return False
    joined = b" %b " % b" ".join(words)
    last = b" %b " % b" ".join(words[-NO_REPEAT:])
    return joined.find(last) < len(joined) - len(last)


def _grown(
    live: Sequence[_Prefix],
    logs: NDArray[np.float32],
    *,
    count: int,
    loops: Callable[[Sequence[int]], bool],
) -> list[tuple[int, int, _Prefix]]:
    """Return the likeliest continuations, best first, each as (row, token, new prefix).

    Of those whose tokens loop none is returned: the end of a text, which adds no word, is left.
    """
    total = logs + np.array([[sum(text.logs)] for text in live], np.float32)
    flat = total.reshape(-1)
    while True:
        best = np.argpartition(flat, -count)[-count:]
        best = best[np.isfinite(flat[best])]
        best = best[np.argsort(-flat[best], kind="stable")]
        found = []
        for index in best.tolist():
            row, token = divmod(index, logs.shape[1])
            found.append((row, token, live[row].extended(token, float(logs[row, token]))))
        looping = [at for at, (_, _, text) in zip(best, found, strict=True) if loops(text.tokens)]
        if not looping:
            return found
        flat[looping] = -np.inf


def _log_softmax(scores: Scores, *, never: int) -> NDArray[np.float32]:
    """Turn logits into log-probabilities; one token gets none. Shape: (rows, V)."""
    logits = scores.logits.copy()
    logits[:, never] = -np.inf
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits
