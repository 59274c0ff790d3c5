"""What the layers of every head compute, against the formulas written out in numpy."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import erf
from torch import nn
from transformers import BertConfig, BertModel

from studies.quality.vector_pair import PairPooling, VectorPair
from studies.tasks.objectives import OneWayAttention
from verso_training.heads import backbone, scoring, token_classifier
from verso_training.heads.modules import (
    CrossEncoder,
    SequenceClassifier,
    SpanHead,
    VectorClassifier,
)
from verso_training.heads.recipe import SpanLayers
from verso_training.heads.scoring import PairTokens
from verso_training.heads.token_classifier import TextTokens

Floats = NDArray[np.float64]
W = 96
"""Width of the thesis's heads, 768, by 8."""
G = torch.Generator().manual_seed(11)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=G)


def array(values: torch.Tensor) -> Floats:
    found: Floats = values.detach().double().numpy()
    return found


def linear(layer: nn.Module, x: Floats) -> Floats:
    assert isinstance(layer, nn.Linear)
    return x @ array(layer.weight).T + array(layer.bias)


def gelu(x: Floats) -> Floats:
    found: Floats = x * 0.5 * (1.0 + erf(x / np.sqrt(2.0)))
    return found


def relu(x: Floats) -> Floats:
    return np.maximum(x, 0.0)


def softmax(z: Floats) -> Floats:
    p = np.exp(z - z.max(-1, keepdims=True))
    found: Floats = p / p.sum(-1, keepdims=True)
    return found


def sigmoid(z: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-z))


def spans(head: SpanHead, x: Floats) -> Floats:
    """Figures 6.1 to 6.6 of the thesis, one line a layer."""
    layer = list(head.hidden)
    if head.layers is SpanLayers.VANILLA:
        return linear(head.out, x)
    if head.layers is SpanLayers.TANH_2:
        return linear(head.out, np.tanh(linear(layer[0], x)))
    if head.layers is SpanLayers.GELU_2:
        return linear(head.out, gelu(linear(layer[0], x)))
    if head.layers is SpanLayers.RELU_2_SKIP:
        return linear(head.out, relu(linear(layer[0], x)) + x)
    if head.layers is SpanLayers.RELU_4:
        return linear(
            head.out, relu(linear(layer[2], relu(linear(layer[1], relu(linear(layer[0], x))))))
        )
    skipped = gelu(linear(layer[1], gelu(linear(layer[0], x)))) + x
    return linear(head.out, gelu(linear(layer[2], skipped)))


@pytest.mark.parametrize("layers", list(SpanLayers))
def test_a_span_head_is_its_figure(layers: SpanLayers) -> None:
    head, states = SpanHead(layers, width=W).eval(), normal(2, 5, W)
    start, end = head(states)
    expected = spans(head, array(states))
    np.testing.assert_allclose(array(torch.stack([start, end], -1)), expected, atol=1e-5)


def test_one_way_attention_is_its_equation() -> None:
    head = OneWayAttention(8, heads=2).eval()
    a, b = normal(2, 3, 8), normal(2, 4, 8)
    mask_a, mask_b = (
        torch.tensor([[1, 1, 0], [1, 1, 1]]),
        torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]),
    )
    inner = array(head.attention.in_proj_weight).reshape(3, 8, 8)
    shift = array(head.attention.in_proj_bias).reshape(3, 8)
    expected = []
    for x, y, own, other in zip(*map(array, (a, b, mask_a, mask_b)), strict=True):
        x, y = x[own > 0], y[other > 0]
        q, k, v = (rows @ w.T + s for rows, w, s in zip((x, y, y), inner, shift, strict=True))
        heads = [slice(0, 4), slice(4, 8)]
        seen = np.concatenate(
            [softmax(q[:, h] @ k[:, h].T / np.sqrt(4.0)) @ v[:, h] for h in heads], axis=-1
        )
        pooled = (x + linear(head.attention.out_proj, seen)).mean(0)
        expected.append(linear(head.out, gelu(linear(head.hidden, pooled)))[0])
    found = head(a, b, mask_a=mask_a, mask_b=mask_b)
    np.testing.assert_allclose(array(found), np.array(expected), atol=1e-5)


@pytest.mark.parametrize("hidden", [0, 5])
def test_a_classifier_of_vectors_is_one_layer_or_two(hidden: int) -> None:
    head, u = VectorClassifier(dim=16, classes=3, hidden=hidden).eval(), normal(4, 16)
    x = array(u) * 4.0
    if head.hidden is not None:
        x = gelu(linear(head.hidden, x))
        np.testing.assert_allclose(array(head(u)[1]), x, atol=1e-5)
    np.testing.assert_allclose(array(head(u)[0]), linear(head.out, x), atol=1e-5)


def test_two_vectors_are_scored_by_cosine_or_by_layers() -> None:
    u, v = (nn.functional.normalize(normal(4, 16), dim=-1) for _ in range(2))
    (cosine,) = VectorPair(PairPooling.COSINE, dim=16)(u, v)
    np.testing.assert_allclose(array(cosine), relu((array(u) * array(v)).sum(-1)), atol=1e-6)
    head = VectorPair(PairPooling.LAYERS, dim=16, hidden=6)
    x, y = 4.0 * array(u), 4.0 * array(v)
    pooled = np.concatenate([x, y, np.abs(x - y), x * y], axis=-1)
    expected = sigmoid(linear(head.out, gelu(linear(head.hidden, pooled))))[:, 0]
    np.testing.assert_allclose(array(head(u, v)[0]), expected, atol=1e-5)


def test_heads_on_tokens_read_the_mean_of_the_states() -> None:
    config = BertConfig(
        vocab_size=50, hidden_size=12, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16,
    )  # fmt: skip
    classifier = SequenceClassifier(BertModel(config, add_pooling_layer=False), classes=3).eval()
    ids = torch.tensor([[2, 7, 9, 3], [2, 8, 3, 0]])
    mask = (ids > 0).long()
    states = array(classifier.bert(input_ids=ids, attention_mask=mask).last_hidden_state)
    pooled = np.stack([states[0].mean(0), states[1, :3].mean(0)])
    logits, feature = classifier(ids, mask)
    expected = gelu(linear(classifier.hidden, pooled))
    np.testing.assert_allclose(array(feature), expected, atol=1e-5)
    np.testing.assert_allclose(array(logits), linear(classifier.out, expected), atol=1e-5)
    scorer = CrossEncoder(classifier.bert).eval()
    (score,) = scorer(ids, mask, torch.zeros_like(ids))
    logit = linear(scorer.out, gelu(linear(scorer.hidden, pooled)))[:, 0]
    np.testing.assert_allclose(array(score), sigmoid(logit), atol=1e-5)
    # What both are trained with: a weighted mean, and soft targets.
    weights, targets = np.array([0.5, 2.0, 1.0]), [1, 0]
    cost = -np.log(softmax(array(logits))[np.arange(2), targets])
    expected = (weights[targets] * cost).sum() / weights[targets].sum()
    texts = [TextTokens([2, 7, 9, 3], 1), TextTokens([2, 8, 3], 0)]
    found = token_classifier.losses(classifier, torch.tensor(weights, dtype=torch.float32))(texts)
    assert float(found["class"].detach()) == pytest.approx(expected, rel=1e-5)
    y, s = np.array([0.3, 0.8]), sigmoid(logit)
    entropy = (-y * np.log(s) - (1.0 - y) * np.log(1.0 - s)).mean()
    given = [PairTokens(text.ids, len(text.ids), one) for text, one in zip(texts, y, strict=True)]
    assert float(scoring.losses(scorer)(given)["score"].detach()) == pytest.approx(
        entropy, rel=1e-5
    )


def test_an_adapter_changes_a_frozen_matrix_by_a_product_of_low_rank() -> None:
    plain, x = nn.Linear(6, 4), normal(3, 6)
    adapted = backbone.LoraLinear(plain, rank=2, alpha=8.0, dropout=0.0)
    np.testing.assert_allclose(array(adapted(x)), linear(plain, array(x)), atol=1e-6)
    nn.init.normal_(adapted.lora_b, generator=G)
    change = array(x) @ array(adapted.lora_a) @ array(adapted.lora_b) * 8.0 / 2.0
    np.testing.assert_allclose(array(adapted(x)), linear(plain, array(x)) + change, atol=1e-5)
    assert {name for name, _ in adapted.named_parameters()} == {"lora_a", "lora_b"}
