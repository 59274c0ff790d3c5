"""Losses and arms of joint training, on numbers small enough to follow."""

from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, BertModel

from studies.papers.joint.arms import ARMS, JointEncoder, Trained
from studies.papers.joint.losses import as_stored, similarity
from verso_training.config import Precision, TrainConfig
from verso_training.encoder import SentenceEncoder


def _small() -> SentenceEncoder:
    torch.manual_seed(3)
    sizes = BertConfig(
        vocab_size=50, hidden_size=8, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=32,
    )  # fmt: skip
    return SentenceEncoder(BertModel(sizes, add_pooling_layer=False)).eval()


def test_cosines_are_compared_over_all_pairs() -> None:
    """By hand: one pair of three has moved from 0 to 0.6, twice counted of six."""
    old = torch.eye(3)
    new = torch.tensor([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])
    assert similarity(new, old) == pytest.approx(2 * 0.36 / 6)
    turned = torch.linalg.qr(torch.randn(3, 3))[0]
    assert similarity(old @ turned, old) == pytest.approx(0, abs=1e-12)


def test_the_gradient_passes_the_rounding_but_not_a_vector_that_is_away() -> None:
    torch.manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.randn(64, 6), dim=-1).requires_grad_()
    config = TrainConfig(vector_dropout=0.5, vector_noise=0.0, vector_precision=Precision.INT8)
    read = as_stored(vectors, config, scale=40.0)
    away = ~read.any(dim=1)
    assert 0 < int(away.sum()) < 64
    assert torch.equal(read[~away] * 40, (read[~away] * 40).round())
    read.sum().backward()  # type: ignore[no-untyped-call]
    assert vectors.grad is not None
    assert torch.equal(vectors.grad, torch.where(away[:, None], 0.0, 1.0).expand(64, 6))


def test_every_arm_has_a_name_of_its_own() -> None:
    assert len({arm.name for arm in ARMS}) == len(ARMS)


@pytest.mark.parametrize("trained", list(Trained))
def test_an_arm_trains_its_part_of_the_encoder_and_starts_where_it_stood(trained: Trained) -> None:
    ids, mask = torch.randint(0, 50, (2, 5)), torch.ones(2, 5, dtype=torch.int64)
    expected = _small()(ids, mask)
    made = JointEncoder(_small(), trained)
    torch.testing.assert_close(made(ids, mask), expected)
    before = {name: weight.clone() for name, weight in made.named_parameters()}
    if made.learning():
        optimiser = torch.optim.SGD(made.learning(), lr=1.0)
        made(ids, mask)[:, 0].sum().backward()
        optimiser.step()
    changed = {
        name for name, weight in made.named_parameters() if not torch.equal(weight, before[name])
    }
    layers = {name.split(".")[4] for name in changed if ".encoder.layer." in name}
    assert {
        Trained.NOTHING: not changed,
        Trained.ADAPTER: bool(changed) and all("adapter" in name for name in changed),
        Trained.LAST_LAYERS: layers == {"1", "2"} and all(".layer." in name for name in changed),
        Trained.ALL: layers == {"0", "1", "2"} and any("embeddings" in name for name in changed),
    }[trained]
