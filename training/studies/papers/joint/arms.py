"""What of the encoder is trained, and how the decoder reads the vector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

import torch
from torch import Tensor, nn

from verso_training.config import Conditioning
from verso_training.encoder import SentenceEncoder
from verso_training.pooling import pool


class Trained(StrEnum):
    """The part of the encoder that learns."""

    NOTHING = "frozen"
    ADAPTER = "adapter before pooling"
    LAST_LAYERS = "last two layers"
    ALL = "all layers"


@dataclass(frozen=True)
class Arm:
    """One way to train the two together."""

    trained: Trained
    conditioning: Conditioning = Conditioning.MEMORY
    fresh: bool = False
    """Whether the memory slots' weights start at random, as those of a cross-attention must."""

    @property
    def name(self) -> str:
        """As it stands in the table and as its folder is called."""
        if self.conditioning is Conditioning.CROSS:
            return f"{self.trained}, new cross-attention"
        return f"{self.trained}, new slots" if self.fresh else str(self.trained)


ARMS = (
    *(Arm(trained) for trained in Trained),
    Arm(Trained.NOTHING, fresh=True),
    Arm(Trained.NOTHING, Conditioning.CROSS),
    Arm(Trained.ALL, Conditioning.CROSS),
)

_LAST = 2


class Adapter(nn.Module):
    """h + W_2 gelu(W_1 h) on the states of tokens. W_2 starts at zero, so it starts as nothing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, width)
        self.up = nn.Linear(width, width)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, states: Tensor) -> Tensor:
        """Shape: (B, T, W), in and out."""
        changed: Tensor = states + self.up(nn.functional.gelu(self.down(states)))
        return changed


class JointEncoder(nn.Module):
    """A sentence encoder of which a part is trained.

    Args:
        base: With the weights to start from. It is changed in place.
        trained: The part that learns.
    """

    def __init__(self, base: SentenceEncoder, trained: Trained) -> None:
        super().__init__()
        self.base = base
        self.dim = base.dim
        width = int(base.bert.config.hidden_size)
        self.adapter = Adapter(width) if trained is Trained.ADAPTER else None
        for weight in base.parameters():
            weight.requires_grad_(False)
        for weight in _learning(base, trained):
            weight.requires_grad_(True)

    def states(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the states of tokens. Shape: twice (B, T) to (B, T, W)."""
        found = self.base.bert(input_ids=input_ids, attention_mask=attention_mask)
        states: Tensor = found.last_hidden_state.float()
        return states if self.adapter is None else self.adapter(states)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return unit vectors. Shape: twice (B, T) to (B, D)."""
        states = self.states(input_ids, attention_mask)
        pooled = self.base.projection(pool(states, attention_mask, self.base.pooling))
        return torch.nn.functional.normalize(pooled, dim=-1)

    def learning(self) -> list[nn.Parameter]:
        """Return the weights that learn."""
        return [weight for weight in self.parameters() if weight.requires_grad]


def _learning(base: SentenceEncoder, trained: Trained) -> Iterable[nn.Parameter]:
    layers = list(cast(nn.ModuleList, base.bert.get_submodule("encoder.layer")))

    def of(modules: Iterable[nn.Module]) -> Iterator[nn.Parameter]:
        for module in modules:
            yield from module.parameters()

    match trained:
        case Trained.LAST_LAYERS:
            return of(layers[-_LAST:])
        case Trained.ALL:
            return base.bert.parameters()
        case Trained.NOTHING | Trained.ADAPTER:
            return ()
