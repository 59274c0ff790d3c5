"""Where a head is trained: on a GPU where PyTorch finds one, else on the processor.

What is measured and written afterwards is computed on the processor, as it is served.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TypeVar

import torch
from torch import Tensor, nn

_B = TypeVar("_B")
PROCESSOR = torch.device("cpu")


def fastest() -> torch.device:
    """What PyTorch computes on beside the processor, if anything.

    ``CUDA_VISIBLE_DEVICES=`` hides every GPU of that kind.
    """
    return torch.accelerator.current_accelerator(check_available=True) or PROCESSOR


def of(module: nn.Module) -> torch.device:
    """Where a module's weights are."""
    return next(module.parameters()).device


def beside(module: nn.Module, tensors: Iterable[Tensor]) -> list[Tensor]:
    """The tensors where the module's weights are, in their order."""
    place = of(module)
    return [tensor.to(place) for tensor in tensors]


def batch_beside(module: nn.Module, batch: _B) -> _B:
    """A dataclass of tensors where the module's weights are."""
    names = [field.name for field in fields(batch)]  # type: ignore[arg-type]
    moved = beside(module, (getattr(batch, name) for name in names))
    return type(batch)(*moved)
