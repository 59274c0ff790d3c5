"""Which part is the first limit when load grows: arithmetic on the output of ``bench_cost``.

    python tests/bench/growth.py cost.log --bytes-ledger 113 --bytes-vectors 500

``cost.log`` is what ``bench_cost.py`` printed; its last line is read. Two things do not scale out:
the ledger, one process that runs its steps one after another on one core, and its memory.
Everything else is added to. No contention, no network, no growth of an index with its size is in
here.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import sheet

FACTORS = (1, 10, 100, 1000)
_DAY_S = 86_400


def main() -> None:
    """Read the measurements and print the limits."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cost", type=Path, help="what bench_cost.py printed")
    parser.add_argument("--cores", type=float, default=2.0, help="of the machine that is 1x")
    parser.add_argument("--bytes-ledger", type=float, required=True, help="of a text")
    parser.add_argument("--bytes-vectors", type=float, required=True, help="of a text")
    arguments = parser.parse_args()
    lines = [row for row in arguments.cost.read_text().splitlines() if row.startswith("{")]
    core_ms: dict[str, float] = json.loads(lines[-1])["core_ms"]["in and verified"]
    one = 1e3 * arguments.cores / sum(core_ms.values())
    rows = []
    for factor in FACTORS:
        rate = one * factor
        daily_gb = rate * _DAY_S / 1e9
        rows.append(
            [
                f"{factor}x",
                rate,
                *(rate * spent / 1e3 for spent in core_ms.values()),
                daily_gb * arguments.bytes_ledger,
                daily_gb * arguments.bytes_vectors,
            ]
        )
    sheet.table(
        "Cores by process, and bytes stored",
        ["", "texts/s", *core_ms, "ledger GB/day", "vectors GB/day"],
        rows,
    )
    full = 1e3 / core_ms["valkey"]
    sheet.table(
        "Load that fills the ledger's one core",
        ["what", "figure"],
        [["texts/s", full], ["multiple of one machine's load", full / one]],
    )


if __name__ == "__main__":
    main()
