"""Would the rival take less with a larger dictionary than `bench_storage.py` gives it?

There the size is chosen from 4 to 110 KiB. Here the same choice, on the end of the first part, is
made once more with 200 and 400 KiB among the sizes; a first part has at most 400 kB. Bytes a record
of the last part, by either choice.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import record_codecs
import record_sets
import sheet

from verso_training.collection import cut

LARGER = (*record_codecs.DICTIONARIES, 200 << 10, 400 << 10)


def measure(found: record_sets.RecordSet, *, records: int) -> dict[str, Any]:
    """Code about so many records of the last part by both rivals."""
    fit = [chunk for text in found.fit for chunk in cut(text)]
    texts = record_sets.spread(found.test, records)
    test = [chunk for text in texts for chunk in cut(text)][:records]
    row: dict[str, Any] = {"set": found.name, "records": len(test)}
    for what, sizes in (("to 110 KiB", record_codecs.DICTIONARIES), ("to 400 KiB", LARGER)):
        rival = record_codecs.with_dictionary(fit, dictionaries=sizes)
        row[what] = sum(min(len(rival.encode(text)), len(text)) for text in test) / len(test)
        row[f"chosen {what}"] = rival.choice
    return row | {"less": 1 - row["to 400 KiB"] / row["to 110 KiB"]}


def main() -> None:
    """Measure, print, hand in."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of public data sets")
    parser.add_argument("--sets", nargs="+", help="names of sets; default: all")
    parser.add_argument("--records", type=int, default=300, help="of each set")
    arguments = parser.parse_args()
    paper = sheet.Sheet("dictionary")
    rows = []
    for found in record_sets.record_sets(arguments.data, arguments.sets):
        rows.append(measure(found, records=arguments.records))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    columns = list(rows[0])
    shown = [row | {"less": f"{row['less']:.1%}"} for row in rows]
    sheet.table("bytes a record", columns, [[row[name] for name in columns] for row in shown])
    paper.finish({"sets": rows})


if __name__ == "__main__":
    main()
