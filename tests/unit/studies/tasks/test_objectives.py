"""Objectives against the formulas written out in numpy."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from studies.tasks import multitask, objectives
from studies.tasks.distillation import distilled
from verso_training.heads.modules import span_loss

G = torch.Generator().manual_seed(4)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=G)


def value(loss: torch.Tensor) -> float:
    return float(loss.detach())


def log_softmax(z: NDArray[np.float64]) -> NDArray[np.float64]:
    z = z - z.max(-1, keepdims=True)
    found: NDArray[np.float64] = z - np.log(np.exp(z).sum(-1, keepdims=True))
    return found


def test_masking_leaves_the_first_token_and_padding_alone() -> None:
    ids = torch.randint(10, 100, (64, 50), generator=G)
    attended = torch.ones_like(ids)
    attended[:, 40:] = 0
    made = objectives.mask_tokens(ids, attended, mask_id=4, vocab=100, generator=G)
    assert not made.chosen[:, 0].any()
    assert not made.chosen[:, 40:].any()
    assert (made.ids[made.hidden] == 4).all()
    assert (made.ids[~made.chosen] == ids[~made.chosen]).all()
    assert made.hidden[:, 1:40].float().mean() == pytest.approx(0.15, abs=0.02)
    assert made.chosen[:, 1:40].float().mean() == pytest.approx(0.30, abs=0.02)


def test_masked_tokens_count_in_both_terms() -> None:
    states, embedding = normal(2, 5, 8), normal(30, 8)
    targets = torch.randint(0, 30, (2, 5), generator=G)
    attended = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]]).bool()
    chosen = torch.tensor([[0, 1, 0, 1, 0], [0, 0, 1, 0, 0]]).bool()
    found = objectives.masked_language_model(
        states, embedding, targets=targets, attended=attended, chosen=chosen
    )
    logs = log_softmax((states @ embedding.T).double().numpy())
    cost = -np.take_along_axis(logs, targets.numpy()[..., None], -1)[..., 0]
    expected = cost[attended.numpy()].mean() + cost[chosen.numpy()].mean()
    assert value(found) == pytest.approx(expected, rel=1e-5)


def test_next_sentence_is_a_cross_entropy_of_two_classes() -> None:
    layer, first = torch.nn.Linear(6, 2), normal(4, 6)
    follows = torch.tensor([1, 0, 1, 1])
    logs = log_softmax(layer(first).detach().double().numpy())
    expected = -logs[np.arange(4), follows.numpy()].mean()
    assert value(objectives.next_sentence(first, layer, follows)) == pytest.approx(expected)


def test_cosine_mse_is_the_squared_distance_to_the_score() -> None:
    u, v, score = normal(5, 7), normal(5, 7), torch.rand(5, generator=G)
    a, b = u.double().numpy(), v.double().numpy()
    cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    expected = ((cosine - score.numpy()) ** 2).mean()
    assert value(objectives.cosine_mse(u, v, score)) == pytest.approx(expected, rel=1e-5)


def test_ranking_counts_only_pairs_in_the_wrong_order() -> None:
    u = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    angles = torch.tensor([0.2, 1.0, 0.6])
    v = torch.stack([angles.cos(), angles.sin()], -1)
    score = torch.tensor([0.9, 0.5, 0.5])
    cosine = [math.cos(a) for a in angles.tolist()]
    expected = math.log(1 + sum(math.exp((cosine[i] - cosine[0]) / 0.1) for i in (1, 2)))
    found = value(objectives.ranked(u, v, score, temperature=0.1))
    assert found == pytest.approx(expected, rel=1e-4)
    assert value(objectives.ranked(u, v, torch.full((3,), 0.5))) == 0.0
    assert value(objectives.ranked(u, v, 1.0 - score)) > 10 * found


def test_pair_classes_read_both_vectors_and_their_distance() -> None:
    u, v, layer = normal(3, 4), normal(3, 4), torch.nn.Linear(12, 3)
    label = torch.tensor([0, 2, 1])
    a, b = u.numpy(), v.numpy()
    joined = np.concatenate([a, b, np.abs(a - b)], -1) @ layer.weight.detach().numpy().T
    logs = log_softmax((joined + layer.bias.detach().numpy()).astype(np.float64))
    expected = -logs[np.arange(3), label.numpy()].mean()
    assert value(objectives.pair_classes(u, v, layer, label)) == pytest.approx(expected, rel=1e-5)


def test_a_triplet_costs_what_the_negative_is_too_near() -> None:
    anchor = torch.zeros(2, 2)
    positive = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    negative = torch.tensor([[0.0, 1.0], [0.0, 9.0]])
    # 5 - 1 + 1 = 5, and 1 - 9 + 1 < 0.
    assert value(objectives.triplet(anchor, positive, negative)) == pytest.approx(2.5)


def test_in_batch_contrast_prefers_the_own_partner() -> None:
    u, v = normal(4, 6), normal(4, 6)
    a, b = u.double().numpy(), v.double().numpy()
    a /= np.linalg.norm(a, axis=-1, keepdims=True)
    b /= np.linalg.norm(b, axis=-1, keepdims=True)
    expected = -np.diag(log_softmax(a @ b.T / 0.05)).mean()
    assert value(objectives.in_batch_contrast(u, v)) == pytest.approx(expected, rel=1e-4)
    assert objectives.in_batch_contrast(u, u) < objectives.in_batch_contrast(u, v)


def test_self_generation_counts_no_padding() -> None:
    logits, targets = normal(2, 3, 5), torch.tensor([[1, 2, -1], [4, -1, -1]])
    logs = log_softmax(logits.double().numpy())
    expected = -(logs[0, 0, 1] + logs[0, 1, 2] + logs[1, 0, 4]) / 3
    found = objectives.self_generation(logits, targets, padding=-1)
    assert value(found) == pytest.approx(expected, rel=1e-5)


def test_one_way_attention_reads_b_and_no_padding() -> None:
    head = objectives.OneWayAttention(8, heads=2).eval()
    a, b = normal(2, 3, 8), normal(2, 4, 8)
    mask_a, mask_b = torch.ones(2, 3), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 0]])
    one = head(a, b, mask_a=mask_a, mask_b=mask_b)
    padded = b.clone()
    padded[:, 3] = 100.0
    assert torch.allclose(one, head(a, padded, mask_a=mask_a, mask_b=mask_b))
    assert not torch.allclose(one, head(a, b.flip(-1), mask_a=mask_a, mask_b=mask_b))


def asked_of_pairs(count: int, draw: torch.Generator) -> tuple[torch.Tensor, ...]:
    """a asks for one of four keys; b tells a sign for each; the label is the sign of a's key."""
    key = torch.randint(0, 4, (count,), generator=draw)
    signs = torch.randint(0, 2, (count, 4), generator=draw) * 2.0 - 1.0
    a, b = torch.zeros(count, 1, 8), torch.zeros(count, 4, 8)
    a[torch.arange(count), 0, key] = 1.0
    b[:, torch.arange(4), torch.arange(4)] = 1.0
    b[:, :, 4] = signs
    return a, b, (signs[torch.arange(count), key] > 0).float()


def test_one_way_attention_learns_what_the_means_do_not_tell() -> None:
    draw = torch.Generator().manual_seed(3)
    torch.manual_seed(3)
    head = objectives.OneWayAttention(8, heads=1)
    optimiser = torch.optim.Adam(head.parameters(), lr=1e-2)
    for _ in range(400):
        a, b, label = asked_of_pairs(64, draw)
        logits = head(a, b, mask_a=torch.ones(64, 1), mask_b=torch.ones(64, 4))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, label)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    a, b, label = asked_of_pairs(400, draw)
    found = head(a, b, mask_a=torch.ones(400, 1), mask_b=torch.ones(400, 4)) > 0
    # By the means, the majority of four signs is right 11 times in 16.
    assert (found == (label > 0.5)).float().mean() > 0.95


def test_one_right_place_makes_the_span_loss_a_cross_entropy() -> None:
    start, end = normal(3, 6), normal(3, 6)
    s, e = torch.tensor([0, 2, 5]), torch.tensor([0, 3, 5])
    starts = torch.nn.functional.one_hot(s, 6).bool()
    ends = torch.nn.functional.one_hot(e, 6).bool()
    found = span_loss(start, end, starts=starts, ends=ends, mask=torch.ones(3, 6).bool())
    rows = np.arange(3)
    expected = (
        -(
            log_softmax(start.double().numpy())[rows, s.numpy()]
            + log_softmax(end.double().numpy())[rows, e.numpy()]
        ).mean()
        / 2
    )
    assert value(found) == pytest.approx(expected, rel=1e-4)


def test_several_right_places_add_their_probabilities() -> None:
    start = normal(1, 4)
    right = torch.tensor([[False, True, False, True]])
    everywhere = torch.ones(1, 4).bool()
    found = span_loss(start, start, starts=right, ends=right, mask=everywhere)
    p = np.exp(log_softmax(start.double().numpy()))[0]
    assert value(found) == pytest.approx(-np.log(p[1] + p[3]), rel=1e-4)


def test_distillation_is_the_softened_divergence_times_the_square() -> None:
    student, teacher = normal(3, 5), normal(3, 5)
    log_p = log_softmax(teacher.double().numpy() / 1.5)
    log_q = log_softmax(student.double().numpy() / 1.5)
    expected = (np.exp(log_p) * (log_p - log_q)).sum(-1).mean() * 1.5**2
    assert value(distilled(student, teacher, temperature=1.5)) == pytest.approx(expected, rel=1e-4)
    assert value(distilled(teacher, teacher, temperature=1.5)) == pytest.approx(0.0, abs=1e-6)


def test_annealed_sampling_starts_by_size_and_ends_nearly_even() -> None:
    sizes = {"large": 32_000, "small": 1_000}
    first = multitask.annealed(sizes, epoch=0, epochs=10)
    last = multitask.annealed(sizes, epoch=9, epochs=10)
    assert first["large"] == pytest.approx(32 / 33)
    assert last["large"] == pytest.approx(2 / 3)  # 32 ** 0.2 = 2


def test_round_robin_draws_what_it_should_and_repeats_itself() -> None:
    sizes = {"a": 300, "b": 100}
    drawn = [*multitask.round_robin(sizes, epochs=1, steps_per_epoch=2000)]
    assert drawn.count("a") / 2000 == pytest.approx(0.75, abs=0.04)
    assert drawn == [*multitask.round_robin(sizes, epochs=1, steps_per_epoch=2000)]
    assert [*multitask.sequential({"a": 2, "b": 1})] == ["a", "a", "b"]
