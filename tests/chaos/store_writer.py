"""Writes the platform's files of a number, and answers when they are on the disk.

    python -m tests.chaos.store_writer FOLDER

Reads numbers from standard input, a line each, and writes each back once its files are synced: an
object of cold storage, a large result, and a change of the registry of models.
"""

from __future__ import annotations

import struct
import sys
from hashlib import blake2b
from pathlib import Path
from random import Random

from verso_core import registry
from verso_core.result_files import ResultFiles
from verso_worker.stores.objects import local_objects

_ARTIFACTS = 50
"""That the registry changes between."""


def main() -> None:
    """Write until the input ends."""
    folder = Path(sys.argv[1])
    for number in range(_ARTIFACTS):
        (folder / "models" / _artifact(number)).mkdir(parents=True, exist_ok=True)
    for line in sys.stdin:
        write_files(folder, int(line))
        sys.stdout.write(line)
        sys.stdout.flush()


def write_files(folder: Path, number: int) -> None:
    """Write the files of a number; they are on the disk when this returns."""
    data = _data(number)
    local_objects(folder / "objects", ledger="0").put(_name(number), data)
    _results(folder).keep(_job(number), 0, data)
    models = folder / "models"
    registry.assign(models, registry.Channel.STABLE, _artifact(number))


def check_files(folder: Path, numbers: list[int], *, registered: set[int]) -> None:
    """Read the files of these numbers, and compare them.

    Args:
        folder: that they are in.
        numbers: that were answered.
        registered: numbers that the registry may name.

    Raises:
        AssertionError: one is lost or wrong.
    """
    if not numbers:
        return
    objects = local_objects(folder / "objects", ledger="0").get([_name(n) for n in numbers])
    assert objects == [_data(number) for number in numbers]
    results = _results(folder)
    for number in numbers:
        assert results.read(_job(number), 0, _reference(_data(number))) == _data(number)
    assert registry.read(folder / "models").stable in {_artifact(number) for number in registered}


def _results(folder: Path) -> ResultFiles:
    return ResultFiles(folder / "results", inline_bytes=0)


def _reference(data: bytes) -> bytes:
    """Return what the ledger holds in place of a large result (`verso_core.result_files`)."""
    return b"\x57" + struct.pack("<Q", len(data)) + blake2b(data, digest_size=32).digest()


def _artifact(number: int) -> str:
    return f"m{number % _ARTIFACTS}"


def _data(number: int) -> bytes:
    dice = Random(number)
    return dice.randbytes(dice.randrange(1, 20_000))


def _name(number: int) -> str:
    return f"{number % 7}/{number}"


def _job(number: int) -> str:
    return f"{number:032x}"


if __name__ == "__main__":
    main()
