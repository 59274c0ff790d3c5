"""An accelerator without hardware: PyTorch takes it for a GPU, and its tensors have data.

It fills the place that PyTorch keeps for devices from outside (``PrivateUse1``) and is found as
they are, by an entry point that ``import torch`` loads (:func:`announce`). A tensor holds its
values in one of the processor's, where every operation is done. What a GPU refuses it refuses:

- tensors of the processor beside its own, but for scalars;
- to be read by numpy;
- ``torch.load`` of its tensors where it is not registered.

Autocast computes products in bfloat16 here too, if asked for this device and not for another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_iter, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "standin"
_DEVICE = torch.device("cpu")  # of the values
_MADE = ("empty.memory_format", "empty_strided", "arange", "arange.start", "arange.start_step")
_NARROW = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention")
NARROWED = "narrowed"
"""Counts products in bfloat16 that a gradient may be asked of."""
done: Counter[str] = Counter()
"""Operations that were done there, by name."""
_kept: list[Any] = []


def announce(folder: Path) -> Path:
    """Write what makes ``import torch`` register it, where ``folder`` is on Python's path."""
    about = folder / f"{NAME}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[torch.backends]\n{NAME} = {__name__}:register\n")
    return folder


class Elsewhere(Tensor):
    """A tensor of the stand-in."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Self:  # noqa: ANN001
        """Wrap values that nothing else refers to."""
        made: Self = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _done(func, args, kwargs or {})

    def __reduce_ex__(self, proto: Any) -> Any:
        values = (self.cpu(), self.dtype, NAME, self.requires_grad)
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, values

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"{NAME}: {self.held!r}"


def _done(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Do an operation on the values of its tensors."""
    given = [one for one in tree_iter((args, kwargs)) if isinstance(one, Tensor)]
    if func is torch.ops.aten.copy_.default:
        _values(given[0]).copy_(_values(given[1]))
        return given[0]
    if func is torch.ops.aten._has_compatible_shallow_copy_type.default:
        return isinstance(given[0], Elsewhere) == isinstance(given[1], Elsewhere)
    if any(not isinstance(one, Elsewhere) and one.ndim for one in given):
        raise RuntimeError(
            f"{func}: expected all tensors on one device, got {[str(one.device) for one in given]}"
        )
    done[str(func)] += 1
    asked = [one for one in tree_iter((args, kwargs)) if isinstance(one, torch.device)]
    here = not asked or asked[0].type == NAME
    found = func(*tree_map(_plain, args), **tree_map(_plain, kwargs))
    known = {id(_values(one)): one for one in given}

    def wrapped(one: Any) -> Any:
        if not isinstance(one, Tensor):
            return one
        if not here:
            return one.clone() if id(one) in known else one
        return known[id(one)] if id(one) in known else Elsewhere(one)

    return tree_map(wrapped, found)


def _plain(one: Any) -> Any:
    return _DEVICE if isinstance(one, torch.device) else _values(one)


def _values(one: Any) -> Any:
    return one.held if isinstance(one, Elsewhere) else one


def register() -> None:
    """Make it this process's accelerator."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    torch.__future__.set_swap_module_params_on_conversion(value=True)
    libraries: Any = torch.library
    library = libraries.Library("aten", "IMPL")
    for name in _MADE:
        library.impl(name, _maker(_operation(name)), "PrivateUse1")
    library.impl("_copy_from", _copied, "PrivateUse1")
    for name in _NARROW:
        library.impl(name, _narrowed(_operation(name)), "AutocastPrivateUse1")
    others = libraries.Library("_", "IMPL")
    others.fallback(libraries.fallthrough_kernel, "AutocastPrivateUse1")
    _kept.extend((library, others))


class _Module:
    """What PyTorch asks of ``torch.standin``."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def manual_seed_all(self, seed: int) -> None:
        """Its random numbers are the processor's, which has been seeded."""

    def _is_in_bad_fork(self) -> bool:
        return False

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


def _operation(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _maker(operation: Any) -> Callable[..., Tensor]:
    def make(*args: Any, **kwargs: Any) -> Tensor:
        return Elsewhere(operation(*args, **kwargs | {"device": _DEVICE, "pin_memory": None}))

    return make


def _copied(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    _values(target).copy_(_values(source))
    return target


def _narrowed(operation: Any) -> Callable[..., Tensor]:
    keys: Any = torch._C.DispatchKey
    here = torch._C.DispatchKeySet(keys.AutocastPrivateUse1)

    def narrow(one: Any) -> Any:
        wide = isinstance(one, Elsewhere) and one.dtype is torch.float32
        return one.to(torch.get_autocast_dtype(NAME)) if wide else one

    def compute(*args: Any, **kwargs: Any) -> Any:
        done[NARROWED] += torch.is_grad_enabled()
        with torch._C._ExcludeDispatchKeyGuard(here):
            return operation(*tree_map(narrow, args), **tree_map(narrow, kwargs))

    return compute
