"""The decoder."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from verso_training.config import Conditioning, ModelConfig
from verso_training.decoder.model import CONFIDENCE_LIMIT, Decoder, confidence

SMALL = ModelConfig(
    vocab=300, width=32, layers=2, heads=4, kv_heads=2, head_dim=8, slots=3, vector_dim=12
)


@pytest.fixture
def decoder() -> Decoder:
    """A small decoder whose output projections are not zero, so that every part matters."""
    torch.manual_seed(3)
    built = Decoder(SMALL)
    for block in built.layers:
        torch.nn.init.normal_(block.attention.out.weight, std=0.2)
        torch.nn.init.normal_(block.feed_forward.down.weight, std=0.2)
    return built.eval()


def _vectors(count: int) -> Tensor:
    return F.normalize(torch.randn(count, SMALL.vector_dim), dim=-1)


@torch.inference_mode()
def test_cached_steps_equal_the_teacher_forced_pass(decoder: Decoder) -> None:
    tokens, vectors = torch.randint(0, 300, (2, 9)), _vectors(2)
    expected = decoder.teacher_forced(tokens, vectors)
    memory = decoder.memory(vectors)
    keys, values = memory.keys, memory.values
    for t in range(9):
        output = decoder(
            tokens[:, t : t + 1],
            torch.full((2, 1), t),
            bias=memory.bias,
            past_mask=torch.zeros(2, keys[0].shape[2]),
            past_keys=keys,
            past_values=values,
        )
        torch.testing.assert_close(output.states[:, 0], expected[:, t], atol=1e-5, rtol=1e-5)
        keys = [torch.cat(pair, 2) for pair in zip(keys, output.keys, strict=True)]
        values = [torch.cat(pair, 2) for pair in zip(values, output.values, strict=True)]


@torch.inference_mode()
def test_later_tokens_do_not_change_earlier_states(decoder: Decoder) -> None:
    tokens, vectors = torch.randint(0, 300, (1, 8)), _vectors(1)
    changed = tokens.clone()
    changed[0, 5:] = 7
    before = decoder.teacher_forced(tokens, vectors)
    after = decoder.teacher_forced(changed, vectors)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


@torch.inference_mode()
def test_a_masked_past_entry_has_no_effect(decoder: Decoder) -> None:
    tokens, positions = torch.randint(0, 300, (1, 4)), torch.arange(4)[None]
    memory = decoder.memory(_vectors(1))
    junk = torch.full((1, SMALL.kv_heads, 2, SMALL.head_dim), 9.0)
    plain = decoder(
        tokens,
        positions,
        bias=memory.bias,
        past_mask=torch.zeros(1, SMALL.slots),
        past_keys=memory.keys,
        past_values=memory.values,
    )
    padded = decoder(
        tokens,
        positions,
        bias=memory.bias,
        past_mask=torch.tensor([[0.0] * SMALL.slots + [-1e9, -1e9]]),
        past_keys=[torch.cat([k, junk], 2) for k in memory.keys],
        past_values=[torch.cat([v, junk], 2) for v in memory.values],
    )
    torch.testing.assert_close(plain.states, padded.states)


@pytest.mark.parametrize("conditioning", list(Conditioning))
@torch.inference_mode()
def test_the_vector_matters_under_either_conditioning(conditioning: Conditioning) -> None:
    torch.manual_seed(0)
    decoder = Decoder(ModelConfig(vocab=300, width=32, layers=1, heads=2, kv_heads=1, head_dim=8,
                                  slots=3, vector_dim=12, conditioning=conditioning))  # fmt: skip
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    tokens = torch.randint(0, 300, (1, 4))
    vectors = _vectors(2)
    one, other = vectors[:1], vectors[1:]
    first, second = decoder.teacher_forced(tokens, one), decoder.teacher_forced(tokens, other)
    assert not torch.allclose(first, second)


@torch.inference_mode()
def test_cross_conditioning_adds_the_same_to_every_position() -> None:
    config = ModelConfig(vocab=300, width=32, layers=1, heads=2, kv_heads=1, head_dim=8,
                         vector_dim=12, conditioning=Conditioning.CROSS)  # fmt: skip
    decoder = Decoder(config)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    vectors = _vectors(2)
    memory = decoder.memory(vectors)
    (crossed,) = [block.cross for block in decoder.layers]
    assert crossed is not None
    torch.testing.assert_close(memory.bias[:, 32:], crossed(vectors))
    assert not memory.bias[:, :32].any()
    assert not torch.stack([*memory.keys, *memory.values]).any()
    assert memory.keys[0].shape[2] == config.prefix == 1


@torch.inference_mode()
def test_an_untrained_decoder_starts_near_the_uniform_loss() -> None:
    torch.manual_seed(0)
    decoder = Decoder(SMALL)
    tokens, targets = torch.randint(0, 300, (8, 20)), torch.randint(0, 300, (8, 20))
    logits = decoder.logits(decoder.teacher_forced(tokens, _vectors(8)))
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    assert abs(float(loss) - math.log(300)) < 0.3


def test_confidence_is_the_log_odds_of_the_top_token() -> None:
    logits = torch.randn(50, 40, dtype=torch.float64) * 3
    top = logits.softmax(-1).amax(-1)
    torch.testing.assert_close(confidence(logits), torch.log(top / (1 - top)))


def test_confidence_is_bounded_where_odds_are_not() -> None:
    logits = torch.tensor([[200.0, 0.0], [0.0, 0.0]])
    assert confidence(logits).tolist() == [CONFIDENCE_LIMIT, 0.0]
