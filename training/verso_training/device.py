"""The device of a training: a GPU if PyTorch finds one, else the CPU.

Figures and files are computed on the CPU afterwards, as a worker serves on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TypeVar

import torch
from torch import Tensor, nn

_B = TypeVar("_B")
PROCESSOR = torch.device("cpu")
FASTEST = "fastest"
"""In a recipe: whatever the machine has."""


def fastest() -> torch.device:
    """Return the accelerator that PyTorch finds, else the CPU.

    ``CUDA_VISIBLE_DEVICES=`` hides every GPU of that kind.
    """
    return torch.accelerator.current_accelerator(check_available=True) or PROCESSOR


def named(name: str) -> str:
    """Return PyTorch's name of a recipe's device."""
    return fastest().type if name == FASTEST else name


def of(module: nn.Module) -> torch.device:
    """Return the device of a module's weights."""
    return next(module.parameters()).device


def beside(module: nn.Module, tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return the tensors on the device of the module's weights, in their order."""
    device = of(module)
    return [tensor.to(device) for tensor in tensors]


def batch_beside(module: nn.Module, batch: _B) -> _B:
    """Return a dataclass of tensors on the device of the module's weights."""
    names = [field.name for field in fields(batch)]  # type: ignore[arg-type]
    moved = beside(module, (getattr(batch, name) for name in names))
    return type(batch)(*moved)
