"""Low-rank adaptation: a task's own change of every matrix of the shared encoder.

Hu et al. 2021, eq. 3: with the stored matrix W_0 frozen,

    h = W_0 x + (alpha / r) B A x,        A in R^(r x in), B in R^(out x r),

A starts Gaussian and B at zero, so training starts at the encoder itself. All linear layers are
adapted, the feed-forward ones too: on attention alone it lags behind full fine-tuning.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from transformers import BertModel

from verso_training.heads.backbone import Backbone


class LoraLinear(nn.Module):
    """A frozen linear layer with a trained low-rank change.

    ``weight`` lies as (in, out), as the artifact's graph holds it: the exported product then takes
    it as it is, and the serving process can share one copy among all heads.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, linear: nn.Linear, *, rank: int, alpha: float, dropout: float) -> None:
        super().__init__()
        self.register_buffer("weight", linear.weight.detach().t().contiguous(), persistent=False)
        self.register_buffer("bias", linear.bias.detach().clone(), persistent=False)
        self.lora_a = nn.Parameter(torch.randn(linear.in_features, rank) * linear.in_features**-0.5)
        self.lora_b = nn.Parameter(torch.zeros(rank, linear.out_features))
        self.scale = alpha / rank
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Shape: (..., in) to (..., out)."""
        change = ((self.dropout(x) @ self.lora_a) * self.scale) @ self.lora_b
        changed: Tensor = x @ self.weight + self.bias + change
        return changed


def adapt(backbone: Backbone, *, rank: int, alpha: float, dropout: float = 0.0) -> BertModel:
    """Put a fresh adapter on every linear layer of the backbone's transformer, in place."""
    bert = backbone.bert
    linears = [name for name, m in bert.encoder.named_modules() if isinstance(m, nn.Linear)]
    for name in linears:
        parent, _, leaf = name.rpartition(".")
        module = bert.encoder.get_submodule(parent)
        linear = getattr(module, leaf)
        setattr(module, leaf, LoraLinear(linear, rank=rank, alpha=alpha, dropout=dropout))
    return bert


def state(module: nn.Module) -> dict[str, Tensor]:
    """What a task owns: every tensor that was trained. The shared weights are not among them."""
    return {name: p.detach().cpu() for name, p in module.named_parameters() if p.requires_grad}


def restore(module: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Load what ``state`` gave; the names must be the same."""
    own = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if own.keys() != saved.keys():
        odd = sorted(own.keys() ^ saved.keys())
        raise KeyError(f"expected the adapter's {len(own)} tensors, differing in {odd[:3]}")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(saved[name])
