"""Table files: npz archives without pickles, read with a check of their members."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verso_core.errors import ArtifactInvalid


def write(path: Path, members: Mapping[str, NDArray[np.generic]]) -> None:
    """Write named arrays as one compressed npz file."""
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **members)


def read(path: Path, names: Sequence[str]) -> dict[str, NDArray[np.generic]]:
    """Read the named arrays, contiguous in memory.

    Raises:
        ArtifactInvalid: when the file is missing or damaged, or lacks one of them.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: np.ascontiguousarray(archive[name]) for name in names}
    except Exception as exc:  # numpy and zipfile raise a dozen unrelated classes here
        raise ArtifactInvalid(f"tables {path}: {exc}") from exc


def check(
    file: str, name: str, member: NDArray[Any], expected: tuple[type, tuple[int, ...]]
) -> None:
    """Check the type and the shape of a member.

    Raises:
        ArtifactInvalid: when it has others.
    """
    dtype, shape = expected
    if member.dtype != dtype or member.shape != shape:
        raise ArtifactInvalid(
            f"{file}: {name}: expected {dtype.__name__} {shape}, got {member.dtype} {member.shape}"
        )


def number(member: NDArray[np.generic], name: str) -> float:
    """Return the one number a member holds.

    Raises:
        ArtifactInvalid: when it holds something else.
    """
    if member.size != 1 or member.dtype.kind not in "iuf":
        raise ArtifactInvalid(f"{name}: expected one number, got {member.dtype} {member.shape}")
    return float(member.reshape(-1)[0])
