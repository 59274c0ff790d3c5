"""What others make of lines: Zstandard in frames and line by line, and CLP."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import zstandard

FRAME_BYTES = 256 * 1024
DICTIONARY_BYTES = 16 * 1024
LARGE_DICTIONARY_BYTES = 110 * 1024
"""What the program `zstd` trains by default."""

_LEVEL = 19


def frames(lines: Sequence[bytes]) -> int:
    """Return the bytes of frames of 256 kB at level 19, as Loki keeps chunks."""
    text = b"".join(line + b"\n" for line in lines)
    packer = zstandard.ZstdCompressor(level=_LEVEL)
    parts = (text[at : at + FRAME_BYTES] for at in range(0, len(text), FRAME_BYTES))
    return sum(len(packer.compress(part)) for part in parts)


def with_dictionary(
    first: Sequence[bytes], second: Sequence[bytes], *, size_bytes: int = DICTIONARY_BYTES
) -> int:
    """Return the bytes of every line alone, with a dictionary of the lines before it.

    The dictionary itself is not counted.
    """
    try:
        trained = zstandard.train_dictionary(size_bytes, list(first))
    except zstandard.ZstdError:  # too few lines
        trained = zstandard.ZstdCompressionDict(b"".join(first)[-size_bytes:])
    packer = zstandard.ZstdCompressor(level=_LEVEL, dict_data=trained, write_content_size=False)
    return sum(len(packer.compress(line)) for line in second)


def clp(lines: Sequence[bytes], program: Path, level: int) -> int:
    """Return the bytes of CLP's archive of all lines, each one JSON object."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, archives = folder / "lines.jsonl", folder / "archives"
        rows = (json.dumps({"message": line.decode(errors="replace")}) for line in lines)
        source.write_text("\n".join(rows) + "\n", encoding="utf-8")
        options = ["--single-file-archive", "--compression-level", str(level)]
        subprocess.run([program, "c", *options, archives, source], check=True, capture_output=True)
        return sum(path.stat().st_size for path in archives.rglob("*") if path.is_file())


def find_clp() -> Path | None:
    """Return the program of the wheel `yscope-clp-core`, or None."""
    found = shutil.which("clp-s") or shutil.which("clp-s", path=str(Path(sys.executable).parent))
    return Path(found) if found else None
