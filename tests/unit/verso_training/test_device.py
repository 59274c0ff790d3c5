"""Where trainings are done. On a device with data: test_accelerator.py of the integration tests."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from verso_training import device


@dataclass(frozen=True)
class Two:
    """A batch."""

    first: Tensor
    second: Tensor


def test_without_an_accelerator_it_is_the_processor() -> None:
    if not torch.accelerator.is_available():
        assert device.fastest() == device.PROCESSOR


def test_a_recipe_names_a_device_or_the_fastest() -> None:
    assert device.named("cuda") == "cuda"
    assert device.named(device.FASTEST) == device.fastest().type


def test_batches_follow_their_module() -> None:
    module = nn.Linear(2, 2).to("meta")
    moved = device.batch_beside(module, Two(torch.ones(1), torch.ones(1)))
    assert moved.first.device == moved.second.device == torch.device("meta")
