"""How the integer loops of the codecs are compiled.

Every kernel is an ordinary Python function over numpy arrays; `kernel` compiles it with numba at
its first call. The same functions run uncompiled when `NUMBA_DISABLE_JIT=1` is set, which is the
reference the compiled code is tested against. To give the same bits either way, kernels use only
integers that fit 63 bits (numba wraps on overflow, Python does not) and convert array elements
with `np.int64()` before arithmetic: numba mixes unsigned and signed operands into floats.

The machine code is cached beside the source, or under `~/.cache/numba` where the package folder
is read-only. A service whose home is read-only too must set `NUMBA_CACHE_DIR` to a writable
folder: numba refuses to import the module when it finds no place for its cache.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numpy as np
from numba import njit

P = ParamSpec("P")
R = TypeVar("R")

Int = int | np.int64
"""A whole number in a kernel; np.int64(...) is how an array element becomes one."""


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile at the first call, cache on disk, release the interpreter lock while running.

    Kernels are inlined into one another: at every call that stays one, numba counts references
    of all array arguments, which doubles the time of the n-gram model.
    """
    compiled = njit(cache=True, nogil=True, forceinline=True)(function)
    return cast(Callable[P, R], compiled)
