"""Compile the kernels of the codecs once for all testers: ``python -m tests.support.kernels``.

Those of log collections first, as the tests that need the others come later.
"""

from __future__ import annotations

from verso_codecs import mixture
from verso_codecs.logs.warm import warm
from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables

_LINES = [b"2026-11-21 12:00:%02d node %d: the queue had to wait" % (n % 60, n) for n in range(40)]


def compile_all() -> None:
    """Call each kernel once; the machine code is kept in numba's cache."""
    warm()
    general = NgramTables.fit(_LINES, heldout=_LINES[:10], widths=(8,) * 8, counting_width=10)
    tables = MixtureTables.fit(_LINES, general)
    assert mixture.decode(mixture.encode(_LINES[0], tables), tables) == _LINES[0]


if __name__ == "__main__":
    compile_all()
