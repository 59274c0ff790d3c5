"""A kernel is compiled again when code that it inlines has changed.

Numba keeps machine code on disk and looks only at the file that holds the kernel. So each such file
names a digest of all others that it takes functions from, and changes with them. Run this file to
write the digests.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import verso_codecs

ROOT = Path(verso_codecs.__file__).parent
LINE = re.compile(r"^# Compiled with what it imports: [0-9a-f]*$", re.MULTILINE)
# In an order in which no file is taken before those that it imports.
FILES = (
    "logs/shapes.py", "logs/parsing.py", "logs/values.py", "logs/ribbon.py", "logs/filters.py",
    "logs/times.py", "rank_stream/literals.py", "rank_stream/measuring.py",
    "rank_stream/writing.py", "rank_stream/reading.py",
)  # fmt: skip
_IMPORT = re.compile(r"^from verso_codecs\.([\w.]+) import", re.MULTILINE)


def sources(path: Path) -> set[Path]:
    """Return the files of the package that a file imports, directly and through others."""
    found: set[Path] = set()
    waiting = [path]
    while waiting:
        for name in _IMPORT.findall(waiting.pop().read_text()):
            other = ROOT / f"{name.replace('.', '/')}.py"
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


def expected(path: Path) -> str:
    """Return the line that a file should have."""
    digest = hashlib.sha256()
    for other in sorted(sources(path)):
        digest.update(other.read_bytes())
    return f"# Compiled with what it imports: {digest.hexdigest()[:16]}"


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_kernels_changes_with_what_it_imports(name: str) -> None:
    path = ROOT / name
    assert LINE.findall(path.read_text()) == [expected(path)], f"run {Path(__file__).name}"


if __name__ == "__main__":
    for file in FILES:
        text = LINE.sub(expected(ROOT / file), (ROOT / file).read_text())
        (ROOT / file).write_text(text)
