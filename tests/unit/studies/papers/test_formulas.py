"""What the studies of the papers reckon, on numbers small enough to follow."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from studies.papers import combined, formats, precision, recurrent, saving
from studies.papers.combined import Decided, Pieces
from studies.papers.kept import Kept, mean, rate, table, with_interval
from studies.papers.multi_task import approximate, pair_strategies
from studies.papers.recurrent import RecurrentDecoder
from verso_training.config import ModelConfig
from verso_training.data.sources import Document, Split
from verso_training.heads.signals import Interval

SMALL = ModelConfig(vocab=40, width=8, layers=1, heads=1, kv_heads=1, vector_dim=6, slots=3)


def test_what_a_part_found_is_not_made_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "study")
    assert kept.of("one", lambda: {"a": 1.5}) == {"a": 1.5}
    assert kept.of("one", lambda: {"a": 2.5}) == {"a": 1.5}
    assert not [*tmp_path.rglob("*.new")]


def test_a_table_is_markdown() -> None:
    assert table(["a", "b"], [["x", "1"]]) == "| a | b |\n|---|---:|\n| x | 1 |"


def test_a_printed_figure_has_the_interval_of_its_rows() -> None:
    """Half of a hundred by Wilson, and a correlation of 0.5 over 103 pairs by Fisher, by hand."""
    share, alike = approximate.of_accuracy(50.0, 100), approximate.of_correlation(50.0, 103)
    assert (share.low, share.high) == pytest.approx((40.38, 59.62), abs=0.01)
    assert (alike.low, alike.high) == pytest.approx((33.9, 63.2), abs=0.1)
    whole = approximate.of_mean(50.0, [Interval(50.0, 47.0, 53.0)] * 4)
    assert (whole.low, whole.high) == (48.5, 51.5)


def test_a_table_below_its_heading_gets_intervals() -> None:
    page = """## One

### Two

| way | SST-5 | Quora | STS-B | mean | minutes |
|---|---:|---:|---:|---:|---:|
| alone | 50.0 [47.1, 52.9] | 80.0 | 85.0 | **71.7** | 8 |
| *theirs* | 51.7 | 88.7 | 85.3 | 75.2 | |
| half | 50.0 | | | | |

### Three

| a | b |
"""
    told = approximate.told(page, "Two").splitlines()
    assert told[0] == "| way | SST-5 | Quora | STS-B | mean |"
    assert told[2].startswith(
        "| alone | 50.0 [47.0, 52.9] | 80.0 [78.2, 81.7] | 85.0 [83.5, 86.3] |"
    )
    assert len(told) == 3


def test_a_figure_over_texts_has_an_interval() -> None:
    """Bits a byte are those of all texts together, not a mean of the texts' own."""
    bits, sizes = [8.0] * 9 + [40.0] * 3, np.array([4] * 9 + [40] * 3)
    found = rate("all", bits, sizes) | mean("bits", bits)
    assert found["all"] == pytest.approx(192 / 156)
    assert found["bits"] == 16.0
    for key in ("all", "bits"):
        assert found[f"{key}/low"] < found[key] < found[f"{key}/high"]
    assert with_interval(found, "bits").startswith("16.0 [")


def test_one_text_of_each_work_is_taken_from_all_over_a_source() -> None:
    documents = [
        Document("books", "books", f"book {work}#{part}", f"{work}.{part}", Split.VALIDATION)
        for work in range(6)
        for part in range(3)
    ]
    assert saving.spread(documents, most=3) == ["0.0", "2.0", "4.0"]
    assert saving.spread(documents, most=9) == [f"{work}.0" for work in range(6)]
    assert saving.spread([], most=9) == []


def test_re_scored_rows_stand_first_in_their_exact_order() -> None:
    coarse = np.array([[0.9, 0.8, 0.7, 0.95]], np.float32)
    exact = np.array([[0.1, 0.3, 0.99, 0.2]], np.float32)
    found = precision.rescored(coarse, exact, count=3)
    assert precision.ranked(found, ["a", "b", "c", "d"]) == [["b", "d", "a", "c"]]
    assert precision.ranked(coarse, ["a", "b", "b", "d"]) == [["d", "a", "b"]]


def test_one_bit_keeps_signs_and_the_length() -> None:
    found = precision.stored(np.array([[0.6, -0.8, 0.0, 0.0]], np.float32), "1 bit", scale=127.0)
    assert found.tolist() == [[0.5, -0.5, 0.5, 0.5]]


def test_the_formula_saves_what_the_vector_and_the_wrong_words_leave() -> None:
    """Eq. 14 by hand: 1 - (384 + 1000 * 0.2) / 1000."""
    assert saving.ratio(384, 1000, 0.8) == pytest.approx(0.416)
    assert saving.ratio(384, 100, 1.0) == pytest.approx(-2.84)


def test_tokens_that_begin_alike_lie_together() -> None:
    pieces = Pieces([b"b", b"ab", b"a", b"abc", b"\xff", b"a\xff"])
    assert [pieces.order.tolist(), pieces.first(b"a")] == [[2, 1, 3, 5, 0, 4], 0]
    behind = np.diff(pieces.bounds(b"a"))
    assert {byte: int(n) for byte, n in enumerate(behind) if n} == {ord("b"): 2, 0xFF: 1}


def test_the_decisions_of_a_token_cost_what_the_decoder_gives_it() -> None:
    """Ends and bytes of a token together are its probability: nothing is lost on the way."""
    pieces = [b"a", b"ab", b"abc", b"b", b"bc"]
    shares = np.array([0.1, 0.2, 0.3, 0.25, 0.15])
    ordered = Pieces(pieces)
    held = np.concatenate([[0.0], np.cumsum(shares[ordered.order])])
    for piece, share in zip(pieces, shares, strict=True):
        rows: list[combined.Decision] = []
        bits = np.unpackbits(np.frombuffer(piece, np.uint8)).reshape(-1, 8)
        chances = np.full(bits.shape, 32_768, np.uint16)
        by_byte = iter(zip(bits, chances, strict=True))
        ends = combined._token(piece, held, ordered, by_byte, rows)
        told = np.array(rows)
        own = np.where(told[:, 2] == 1, told[:, 1], 1 - told[:, 1])
        assert ends - np.log2(own).sum() == pytest.approx(-np.log2(share), abs=1e-3)


def test_mixing_is_no_worse_than_either_on_what_it_learnt() -> None:
    rng = np.random.default_rng(4)
    truth = rng.random(4000)
    bits = (rng.random(4000) < truth).astype(np.int64)
    one, other = (np.clip(truth + rng.normal(0, 0.2, 4000), 0.02, 0.98) for _ in range(2))
    owners = np.repeat([0, 1], 2000)
    found = Decided(one, other, bits, np.zeros(4000, np.int64), owners, np.zeros(2))
    both = found.cost(combined.mixed(found, combined.fitted(found)))
    assert both.sum() < min(found.cost(found.mixture).sum(), found.cost(found.decoder).sum())
    halves = [dataclasses.replace(found, bits=1 - bits).cost(one)[at] for at in (0, 1)]
    for at, half in enumerate(halves):
        rows = owners == at
        by_hand = -np.log2(np.where(bits[rows] == 0, one[rows], 1 - one[rows])).sum()
        assert half == pytest.approx(by_hand)


def test_an_object_is_json_and_its_syntax_is_what_no_field_holds() -> None:
    fields = {"Pid": "148", "Time": "081109", "Content": 'a "b" stops'}
    made = formats.rendered(fields)
    assert json.loads(made.text) == {"Pid": 148, "Time": "081109", "Content": 'a "b" stops'}
    values = bytes(byte for byte, syntax in zip(made.text, made.syntax, strict=True) if not syntax)
    assert values == b'148081109a \\"b\\" stops'


def test_bits_are_counted_where_they_are_spent() -> None:
    """Eight bits a byte: by hand, an address of 32 bits and two digits of log2(10) each."""
    made = formats.rendered({"host": "10.0.0.10", "n": "42"})
    found = formats.spent([made], lambda text: np.full(len(text) + 1, 8.0))
    assert found["all"] == len(made.text) + 1
    assert found["values"] == len("10.0.0.10") + len("42")
    assert found["syntax"] == made.syntax.sum() == found["all"] - found["no syntax"]
    assert found["slots"] == pytest.approx(found["all"] - 11 + (32 + 2 * math.log2(10)) / 8)
    assert found["slots or"] == found["slots"]


def test_bytes_a_record_have_intervals_over_the_records() -> None:
    rows = [formats.rendered({"n": "1" * size}) for size in (2, 4, 6, 8)]
    found = formats.spent(rows, lambda text: np.full(len(text) + 1, 8.0))
    assert found["all"] == np.mean([len(row.text) + 1 for row in rows])
    assert found["all/low"] < found["all"] < found["all/high"]
    figures = {"bytes": 12.0}
    for codec in ("decoder", "mixture"):
        figures |= {f"{codec}/{key}": value for key, value in found.items()}
    told = formats.page({"made up": figures})
    assert told.count(with_interval(found, "all")) == 2


@pytest.mark.parametrize(("classes", "likeliest"), [(2, 1), (6, 3)])
def test_the_likeliest_class_of_a_cosine_is_that_of_its_centre(
    classes: int, likeliest: int
) -> None:
    """Appendix A by hand: at 0.4 the fourth of six logits is 1."""
    logits = pair_strategies.cosine_logits(
        torch.tensor([0.4 if classes == 6 else 0.7]), classes=classes
    )
    assert logits.shape == (1, classes)
    assert int(logits.argmax()) == likeliest
    assert float(logits.max()) == pytest.approx(1.0 if classes == 6 else 0.7)


@pytest.mark.parametrize("attends", [False, True])
def test_a_recurrent_decoder_reads_its_vector_and_nothing_of_what_comes(*, attends: bool) -> None:
    torch.manual_seed(2)
    decoder = RecurrentDecoder(SMALL, attends=attends).eval()
    tokens, vector = torch.randint(0, 38, (2, 7)), torch.randn(2, 6)
    states = decoder.teacher_forced(tokens, vector)
    assert states.shape == (2, 7, 8)
    later = tokens.clone()
    later[:, 4:] = 3
    assert torch.allclose(decoder.teacher_forced(later, vector)[:, :4], states[:, :4], atol=1e-6)
    assert not torch.allclose(decoder.teacher_forced(tokens, vector.flip(0)), states, atol=1e-3)
    assert decoder.logits(states).shape == (2, 7, 40)


def test_a_greedy_guess_stops_at_the_end_token() -> None:
    class Counting:
        """Says 0, 1, 2 and then the end."""

        config = SMALL

        def teacher_forced(self, tokens: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
            del vector
            return tokens[..., None].float()

        def logits(self, states: torch.Tensor) -> torch.Tensor:
            last = states[:, 0].long()
            told = torch.where(last == SMALL.bos, 0, torch.where(last < 2, last + 1, SMALL.eos))
            return torch.nn.functional.one_hot(told, SMALL.vocab).float()

    made = recurrent.greedy(Counting(), torch.zeros(2, 6), most=6)  # type: ignore[arg-type]
    assert made == [[0, 1, 2], [0, 1, 2]]
