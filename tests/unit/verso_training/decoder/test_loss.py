"""The sliced cross-entropy against the plain one."""

import torch
from torch.nn import functional as F

from verso_training.decoder import loss


def test_loss_and_gradients_equal_plain_cross_entropy() -> None:
    torch.manual_seed(0)
    states = torch.randn(2000, 16, requires_grad=True)  # more rows than one slice
    embedding = torch.randn(40, 16, requires_grad=True)
    targets = torch.randint(0, 40, (2000,))
    ours = loss.tied_cross_entropy(states, embedding, targets)
    plain = F.cross_entropy(states @ embedding.T, targets)
    torch.testing.assert_close(ours, plain)
    for got, want in zip(
        torch.autograd.grad(3.0 * ours, (states, embedding)),
        torch.autograd.grad(3.0 * plain, (states, embedding)),
        strict=True,
    ):
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-4)
