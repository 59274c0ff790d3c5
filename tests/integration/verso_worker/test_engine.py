"""The model reads back every byte it coded, whatever runs beside it and in whatever batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from verso_core import manifest
from verso_core.errors import RequestInvalid, VectorInvalid
from verso_core.manifest import Artifact
from verso_worker.engine import guessing
from verso_worker.engine.batching import BATCH_ROWS
from verso_worker.engine.decoder import Cache, Decoder
from verso_worker.engine.encoder import Precision
from verso_worker.engine.loading import load_service
from verso_worker.engine.service import Service
from verso_worker.engine.sessions import Device, Load, Sessions, open_session
from verso_worker.records.artifact import golden_samples

ARTIFACT = Path(__file__).parents[2] / "data" / "artifact-tiny"
SHIPPED = Path(__file__).parents[3] / "models" / "default"
HARD = [
    b"",
    b" ",
    b"\0",
    b"tab\tand\r\nline ends\n\n",
    "e\u0301 \u202e \U0001f469\u200d\U0001f469\u200d\U0001f467 \ud7ff\ue000".encode(),
    b"1234567890 0x7f3a 10.0.0.1 2026-11-21T12:00:00Z",
    b"a" * 120,
]

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Coded:
    """Texts with their stored vectors, widened, and the payloads coded against them."""

    texts: list[bytes]
    vectors: Vectors
    payloads: list[bytes]


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return manifest.load(ARTIFACT)


@pytest.fixture(scope="module")
def service(artifact: Artifact) -> Iterator[Service]:
    service = load_service(artifact, threads=1)
    yield service
    service.close()


@pytest.fixture(scope="module")
def coded(artifact: Artifact, service: Service) -> Coded:
    """Golden and hard texts; their vectors rounded to float16 as a store does."""
    texts = [*HARD, *(sample.text for sample in golden_samples(artifact))]
    vectors = service.encode(texts).vectors.astype(np.float16).astype(np.float32)
    payloads = service.code(texts, vectors)
    rows = [row for row, payload in enumerate(payloads) if payload is not None]
    assert len(rows) > 40
    return Coded(
        [texts[row] for row in rows],
        vectors[rows],
        [payload for payload in payloads if payload is not None],
    )


@pytest.fixture(scope="module")
def decoder(artifact: Artifact) -> Decoder:
    memory, steps = (
        open_session(artifact.data[name], name, threads=1, device=Device.CPU, optimisation="basic")
        for name in ("memory.onnx", "decoder.onnx")
    )
    graph = Sessions(steps, None, load=Load())
    return Decoder(memory, graph, artifact.manifest.codec, dim=artifact.manifest.space.dim)


@pytest.mark.parametrize("disturbed", [False, True])
@pytest.mark.parametrize("size", [1, 7, 32, BATCH_ROWS + 5])
def test_texts_come_back_in_every_batch_shape(
    service: Service, coded: Coded, size: int, disturbed: bool
) -> None:
    found: list[bytes | None] = []
    for start in range(0, len(coded.texts), size):
        part = slice(start, start + size)
        found += service.read(coded.payloads[part], coded.vectors[part], disturbed=disturbed)
    assert found == coded.texts


def test_a_text_longer_than_the_window_is_known_by_a_mark(service: Service) -> None:
    texts = [b"a " * 254, b"a " * 255, b"x" * 20_000, b""]  # two of 256 tokens begin and end it
    found = service.encode(texts)
    assert (found.tokens[0], found.tokens[1]) == (256, 256)
    assert found.truncated == [False, True, True, False]
    whole = service.encode([b"a " * 254]).vectors[0]
    np.testing.assert_allclose(found.vectors[1], whole, atol=1e-5)


def test_texts_coded_with_two_threads_are_read_with_one(
    artifact: Artifact, service: Service, coded: Coded
) -> None:
    other = load_service(artifact, threads=2)
    payloads = other.code(coded.texts, coded.vectors)
    other.close()
    assert service.read([p or b"" for p in payloads], coded.vectors) == coded.texts


def test_what_a_float16_encoder_made_is_near_and_read_by_a_float32_engine(
    artifact: Artifact, service: Service, coded: Coded
) -> None:
    """A record is coded against the vector that is stored, whatever encoder gave it."""
    with closing(load_service(artifact, threads=2, precision=Precision.FLOAT16)) as other:
        assert other.precision is Precision.FLOAT16
        found = other.encode(coded.texts).vectors
        stored = found.astype(np.float16).astype(np.float32)
        payloads = other.code(coded.texts, stored)
        assert other.read(coded.payloads, coded.vectors) == coded.texts
    assert service.read([p or b"" for p in payloads], stored) == coded.texts
    exact = service.encode(coded.texts).vectors
    assert not np.array_equal(found, exact)
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() < 1e-6
    assert np.sum(found * exact, axis=1).min() > artifact.manifest.tolerance.vector_cosine


def test_the_order_of_texts_does_not_change_their_payloads(service: Service, coded: Coded) -> None:
    backwards = service.code(coded.texts[::-1], coded.vectors[::-1])
    assert service.read([p or b"" for p in backwards], coded.vectors[::-1]) == coded.texts[::-1]


@pytest.mark.parametrize("disturbed", [False, True])
def test_drafts_right_or_wrong_change_no_result(
    service: Service, coded: Coded, disturbed: bool
) -> None:
    wrong = [b"", b"\xff", b"9" * 500, b"another text", b"the", b"The message"]
    drafts = [
        text if row % 3 else (text[: row // 2], text + b" ", wrong[row % 6])[row // 3 % 3]
        for row, text in enumerate(coded.texts)
    ]
    found = service.read(coded.payloads, coded.vectors, drafts=drafts, disturbed=disturbed)
    assert found == coded.texts


def test_a_right_draft_is_confirmed_without_a_decoding_loop(
    artifact: Artifact, coded: Coded
) -> None:
    service = load_service(artifact, threads=1)
    service._bulk_reader.close()
    service._quick_reader.close()
    confirmed = service._confirmed(
        list(zip(coded.payloads, coded.vectors, coded.texts, strict=True)),
        disturbed=True,
    )
    service.close()
    assert confirmed == [True] * len(coded.texts)


@settings(max_examples=25, deadline=None)
@given(place=st.integers(0, 30), bit=st.integers(0, 7), row=st.integers(0, 40))
def test_a_spoilt_payload_is_never_confirmed_as_what_it_no_longer_says(
    service: Service, coded: Coded, place: int, bit: int, row: int
) -> None:
    payload = bytearray(coded.payloads[row] or b"\0")
    payload[place % len(payload)] ^= 1 << bit
    alone = slice(row, row + 1)
    without = service.read([bytes(payload)], coded.vectors[alone])
    assert without == service.read(
        [bytes(payload)], coded.vectors[alone], drafts=coded.texts[alone]
    )


def test_many_threads_read_their_own_texts(service: Service, coded: Coded) -> None:
    wrong: list[int] = []

    def read(number: int) -> None:
        rows = np.random.default_rng(number).permutation(len(coded.texts))[: 5 + 9 * number]
        found = service.read(
            [coded.payloads[row] for row in rows], coded.vectors[rows], disturbed=number % 2 == 0
        )
        if found != [coded.texts[row] for row in rows]:
            wrong.append(number)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_text_that_the_decoder_cannot_hold_is_not_coded(service: Service) -> None:
    texts = [b"\xff\xfe", b"9" * 128, b"9" * 127, b"word " * 100_000]
    payloads = service.code(texts, service.encode(texts).vectors)
    assert [payload is None for payload in payloads] == [True, True, False, True]


@settings(max_examples=25, deadline=None)
@given(junk=st.lists(st.binary(max_size=90), min_size=1, max_size=8))
def test_corrupt_payloads_end_and_harm_no_neighbour(
    service: Service, coded: Coded, junk: list[bytes]
) -> None:
    payloads = [*junk, *coded.payloads[:8]]
    vectors = np.concatenate([coded.vectors[: len(junk)], coded.vectors[:8]])
    found = service.read(payloads, vectors)
    assert found[len(junk) :] == coded.texts[:8]


def test_a_payload_with_bytes_behind_its_end_does_not_pass(service: Service, coded: Coded) -> None:
    longer = [payload + b"\x55\xaa\x55" for payload in coded.payloads]
    found = service.read(longer, coded.vectors)
    assert [text for text, wanted in zip(found, coded.texts, strict=True) if text == wanted] == []


def test_vectors_do_not_depend_on_what_runs_beside_them(service: Service, coded: Coded) -> None:
    together = service.encode(coded.texts).vectors
    alone = np.concatenate([service.encode([text]).vectors for text in coded.texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)


def test_encoding_takes_any_bytes_and_stops_at_the_limit(
    artifact: Artifact, service: Service
) -> None:
    encoded = service.encode([b"", b"\xff\x00\xc3", b"word " * 200_000])
    assert np.isfinite(encoded.vectors).all()
    assert encoded.tokens[0] == 2
    assert encoded.tokens[2] == artifact.manifest.space.max_encoder_tokens


def test_no_texts_give_no_vectors(service: Service) -> None:
    encoded = service.encode([])
    assert encoded.vectors.shape == (0, 384)
    assert service.code([], encoded.vectors) == service.read([], encoded.vectors) == []


@pytest.mark.parametrize("shape", [(1, 384), (2, 383), (2,)])
def test_vectors_of_another_shape_are_refused(service: Service, shape: tuple[int, ...]) -> None:
    with pytest.raises(VectorInvalid, match="expected shape"):
        service.code([b"a", b"b"], np.zeros(shape, np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_a_vector_of_no_store_gives_none_and_spoils_no_later_record(
    service: Service, coded: Coded, bad: float
) -> None:
    vectors = coded.vectors[:64].copy()
    vectors[::2] = bad
    texts, payloads = coded.texts[:64], coded.payloads[:64]
    assert [p is None for p in service.code(texts, vectors)] == [True, False] * 32
    found = service.read(payloads, vectors)
    assert found[::2] == [None] * 32
    assert found[1::2] == texts[1::2]
    assert service.read(payloads, coded.vectors[:64]) == texts


def test_a_greedy_guess_is_the_likeliest_token_at_every_step(
    service: Service, decoder: Decoder, coded: Coded
) -> None:
    [guess] = service.guess(coded.vectors[:1], beam=1, max_tokens=12)
    cache = Cache(decoder, 1)
    cache.add(decoder.memory(coded.vectors[:1]))
    tokens: list[int] = []
    chances: list[float] = []
    last = decoder.codec.bos
    while len(tokens) < 12 and last != decoder.codec.eos:
        logits = cache.step(np.array([last])).logits[0].astype(np.float64)
        logits[decoder.codec.bos] = -np.inf
        total = np.exp(logits).sum()
        logits[guessing._repeating(tokens)] = -np.inf
        for token, piece in enumerate(service._vocabulary._pieces):
            if guessing.repeats_words(_spelled(service, tokens) + piece):
                logits[token] = -np.inf
        last = int(logits.argmax())
        chances.append(np.exp(logits[last]) / total)
        tokens.append(last)
    text = _spelled(service, [token for token in tokens if token != decoder.codec.eos])
    assert guess.text == text
    assert guess.confidence == pytest.approx(np.mean(chances), abs=1e-4)
    assert guess.log_probability == pytest.approx(np.mean(np.log(chances)), abs=1e-4)


def _spelled(service: Service, tokens: list[int]) -> bytes:
    text = service._vocabulary.text(tokens)
    assert text is not None
    return text


def test_a_beam_finds_a_text_and_stops_at_the_limit(service: Service, coded: Coded) -> None:
    guesses = service.guess(coded.vectors[:3], beam=4, max_tokens=10_000)
    assert all(guess.log_probability <= 0 and 0 < guess.confidence <= 1 for guess in guesses)
    [short] = service.guess(coded.vectors[:1], beam=4, max_tokens=1)
    assert len(service._vocabulary.tokenise([short.text])[0] or []) <= 1


def test_a_guess_does_not_loop_and_has_the_cosine_of_its_own_vector(
    service: Service, coded: Coded
) -> None:
    for beam in (1, 4):
        guesses = service.guess(coded.vectors[:6], beam=beam, max_tokens=10_000)
        for vector, guess in zip(coded.vectors, guesses, strict=False):
            [tokens] = service._vocabulary.tokenise([guess.text])
            assert tokens is not None
            own = service.encode([guess.text]).vectors[0]
            assert guess.cosine == pytest.approx(own @ vector / np.linalg.norm(vector), abs=1e-3)
    prefix = [1, 2, 3, 4, 1, 2, 3]
    assert guessing._repeating(prefix) == [4]
    assert guessing._repeating(prefix[:-1]) == []
    assert guessing._repeating([7] * 4) == [7]
    assert guessing._repeating([7] * 3) == []


def test_a_guess_of_the_shipped_decoder_says_no_four_words_twice() -> None:
    text = (
        b"We stood a moment so in a strange world,\nMyself as one his own pretense deceives;\n"
        b"And then I said the truth (and we moved on):\n"
        b"A young beech clinging to its last year's leaves."
    )
    with closing(load_service(manifest.load(SHIPPED), threads=1)) as service:
        vectors = service.encode([text]).vectors
        for beam in (1, 4):
            [guess] = service.guess(vectors, beam=beam, max_tokens=10_000)
            words = guess.text.split()
            fours = [tuple(words[at : at + 4]) for at in range(len(words) - 3)]
            assert len(set(fours)) == len(fours) > 20


@given(st.lists(st.sampled_from([b"a", b"b", b" ", b"\n"]), max_size=40))
def test_words_repeat_where_four_of_them_stand_twice(pieces: list[bytes]) -> None:
    prefixes = [b"".join(pieces[:count]) for count in range(len(pieces) + 1)]
    words = prefixes[-1].split()
    fours = [tuple(words[at : at + 4]) for at in range(len(words) - 3)]
    if not any(map(guessing.repeats_words, prefixes)):
        assert len(set(fours)) == len(fours)
    if guessing.repeats_words(prefixes[-1]):
        assert fours[-1] in fours[:-1]


@pytest.mark.parametrize(("beam", "max_tokens"), [(0, 5), (17, 5), (1, 0)])
def test_a_guess_out_of_range_is_refused(
    service: Service, coded: Coded, beam: int, max_tokens: int
) -> None:
    with pytest.raises(RequestInvalid):
        service.guess(coded.vectors[:1], beam=beam, max_tokens=max_tokens)


def test_a_guess_from_a_vector_with_nan_is_refused(service: Service) -> None:
    with pytest.raises(VectorInvalid):
        service.guess(np.full((1, 384), np.nan, np.float32), beam=1, max_tokens=5)


def _steps(decoder: Decoder, rows: list[list[int]], vectors: Vectors) -> list[Vectors]:
    """Logits of each row, read token by token while rows of unequal length come and go."""
    cache = Cache(decoder, len(rows))
    found: list[list[Vectors]] = [[] for _ in rows]
    live: list[int] = []
    waiting = list(range(len(rows)))
    while live or waiting:
        if waiting:  # one more row each step, so that rows stand at different positions
            live.append(waiting.pop(0))
            cache.add(decoder.memory(vectors[live[-1]][None]))
        last = [[decoder.codec.bos, *rows[row]][len(found[row])] for row in live]
        logits = cache.step(np.array(last)).logits
        for place, row in enumerate(live):
            found[row].append(logits[place].copy())
        for place in reversed(range(len(live))):
            if len(found[live[place]]) == len(rows[live[place]]) + 1:
                cache.remove(place)
                live[place] = live[-1]
                live.pop()
    return [np.stack(row) for row in found]


def test_reading_step_by_step_scores_as_reading_at_once(decoder: Decoder) -> None:
    random = np.random.default_rng(3)
    lengths = [0, 1, 5, 30, 64, 100, decoder.codec.max_tokens - 1]
    rows = [random.integers(0, decoder.codec.vocab - 2, n).tolist() for n in lengths]
    vectors = random.standard_normal((len(rows), decoder.dim)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[0] = 0.0
    at_once = decoder.score(rows, decoder.memory(vectors))
    for row, logits in enumerate(_steps(decoder, rows, vectors)):
        # float32 noise between shapes; far inside the margin of the codec.
        np.testing.assert_allclose(logits, at_once.logits[row, : len(logits)], atol=2e-4)


def test_rows_arranged_for_a_beam_continue_what_they_read(decoder: Decoder) -> None:
    vector = np.random.default_rng(5).standard_normal((1, decoder.dim)).astype(np.float32)
    memory = decoder.memory(vector / np.linalg.norm(vector))
    cache = Cache(decoder, 4)
    cache.add(memory)
    cache.step(np.array([decoder.codec.bos]))
    cache.arrange([0, 0])
    cache.step(np.array([7, 9]))
    cache.arrange([1, 0, 1])
    logits = cache.step(np.array([3, 3, 4])).logits.copy()
    wanted = decoder.score([[9, 3], [7, 3], [9, 4]], memory.rows([0, 0, 0])).logits[:, 2]
    np.testing.assert_allclose(logits, wanted, atol=2e-4)


def test_a_closed_service_finishes_what_it_took(
    artifact: Artifact, coded: Coded, make_thread: Callable[..., threading.Thread]
) -> None:
    service = load_service(artifact, threads=1)
    found: list[list[bytes | None]] = []
    thread = make_thread(lambda: found.append(service.read(coded.payloads, coded.vectors)))
    while not service._bulk_reader._items and not found:
        thread.join(0.001)
    service.close()
    thread.join(60)
    assert found == [coded.texts]


@pytest.fixture
def make_thread() -> Callable[..., threading.Thread]:
    def make(target: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=target)
        thread.start()
        return thread

    return make


def test_a_small_read_overtakes_a_bulk_read(service: Service, coded: Coded) -> None:
    many = [*range(len(coded.texts))] * 20
    ended: list[str] = []

    def bulk() -> None:
        service.read([coded.payloads[row] for row in many], coded.vectors[many])
        ended.append("bulk")

    thread = threading.Thread(target=bulk)
    thread.start()
    while not service._bulk_reader._items:
        thread.join(0.001)
    assert service.read(coded.payloads[:1], coded.vectors[:1]) == coded.texts[:1]
    ended.append("one")
    thread.join()
    assert ended == ["one", "bulk"]
