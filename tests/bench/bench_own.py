"""How many bytes does a record take when everything is fitted to the set itself?

The question of someone who has a collection: what does a record of tomorrow take, next to its
vector, if today's records may be learnt from? Every set is cut in time (`own_sets`): codecs are
fitted to its first part and measured on its last one, record by record, each read back alone.

- *zstd*: Zstandard at level 19 with no dictionary; *brotli* at its best level;
- *zstd+dict*: Zstandard with a dictionary from the same first part, magicless and without any
  header; the dictionary's size and kind (trained, or plain text) and the level are chosen on the
  last 15 % of the first part, and the dictionary is then made of all of it;
- *n-gram*: the default artifact's, which never saw the set;
- *mixture*: `mixture.npz` fitted to the first part;
- *stored*: the smallest of raw, zstd+dict, n-gram and mixture, and the byte that names it.

*worst* is the most that any one record's stored size is above its zstd+dict. *table* is what is
kept of the set for it: `mixture.npz`. Every payload is read back and compared. Speeds are of one
thread; they are limited by the processor.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import brotli
import own_sets
import sheet
import zstandard

from verso_codecs import mixture, ngram, zstd
from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables
from verso_standalone.stack import find_artifact
from verso_training.collection import cut

LEVELS = (3, 19)
DICTIONARIES = (4 << 10, 16 << 10, 64 << 10, 110 << 10)
HELD_OUT = 0.15

Encode = Callable[[bytes], bytes]


def compressor(dictionary: bytes, level: int, *, plain: bool) -> Encode:
    """Give a Zstandard coder with the least header; plain = the dictionary is raw content."""
    kind = zstandard.DICT_TYPE_RAWCONTENT if plain else zstandard.DICT_TYPE_AUTO
    data = zstandard.ZstdCompressionDict(dictionary, dict_type=kind) if dictionary else None

    def encode(text: bytes) -> bytes:
        parameters = zstandard.ZstdCompressionParameters.from_level(
            level,
            source_size=max(len(text), 1),
            dict_size=len(dictionary),
            format=zstandard.FORMAT_ZSTD1_MAGICLESS,
            write_content_size=False,
            write_checksum=False,
            write_dict_id=False,
        )
        coder = zstandard.ZstdCompressor(compression_params=parameters, dict_data=data)
        return coder.compress(text)

    return encode


def best_dictionary(fit: Sequence[bytes]) -> tuple[Encode, str]:
    """Choose size, kind and level on the last records, then use all of them."""
    held = max(1, int(HELD_OUT * len(fit)))
    before, after = fit[:-held], fit[-held:]
    sizes = {}
    for size, plain, level in product(DICTIONARIES, (False, True), LEVELS):
        encode = compressor(_dictionary(before, size, plain=plain), level, plain=plain)
        sizes[size, plain, level] = sum(len(encode(text)) for text in after)
    size, plain, level = min(sizes, key=lambda choice: sizes[choice])
    name = f"{size >> 10} KiB {'plain' if plain else 'trained'}, level {level}"
    return compressor(_dictionary(fit, size, plain=plain), level, plain=plain), name


def _dictionary(texts: Sequence[bytes], size: int, *, plain: bool) -> bytes:
    return b"\n".join(texts)[-size:] if plain else zstd.train(texts, size)


def measure(own: own_sets.OwnSet, general: NgramTables) -> dict[str, Any]:
    """Fit to a set's first part and measure on its last."""
    fit = [chunk for text in own.fit for chunk in cut(text)]
    test = [chunk for text in own.test for chunk in cut(text)]
    with_dictionary, chosen = best_dictionary(fit)
    alone = compressor(b"", 19, plain=False)
    started = time.perf_counter()
    tables = MixtureTables.fit(fit, general)
    fitted = time.perf_counter()
    payloads = [mixture.encode(text, tables) for text in test]
    coded = time.perf_counter()
    if [mixture.decode(payload, tables) for payload in payloads] != test:
        raise AssertionError(f"{own.name}: a record did not come back")
    read = time.perf_counter()
    frames = [len(with_dictionary(text)) for text in test]
    grams = [len(ngram.encode(text, general)) for text in test]
    best = [
        1 + min(len(text), frame, gram, len(payload))
        for text, frame, gram, payload in zip(test, frames, grams, payloads, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        tables.save(Path(folder) / "mixture.npz")
        table = (Path(folder) / "mixture.npz").stat().st_size
    count, raw = len(test), sum(map(len, test))
    return {
        "set": own.name,
        "records": count,
        "fitted_to": len(fit),
        "raw": raw / count,
        "zstd": sum(len(alone(text)) for text in test) / count,
        "brotli": sum(len(brotli.compress(t, quality=11, lgwin=16)) for t in test) / count,
        "zstd_dict": sum(frames) / count,
        "zstd_choice": chosen,
        "ngram": sum(grams) / count,
        "mixture": sum(map(len, payloads)) / count,
        "stored": sum(best) / count,
        "of_zstd_dict": sum(best) / sum(frames),
        "worst": max(size - frame for size, frame in zip(best, frames, strict=True)),
        "bits_a_byte": 8 * sum(map(len, payloads)) / raw,
        "table": table,
        "fit_s": fitted - started,
        "encode_s_a_mb": 1e6 * (coded - fitted) / raw,
        "decode_s_a_mb": 1e6 * (read - coded) / raw,
    }


def main() -> None:
    """Measure, print, hand in."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of public data sets")
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--sets", nargs="+", help="names of sets; default: all")
    arguments = parser.parse_args()
    paper = sheet.Sheet("own")
    artifact = arguments.artifact or find_artifact()
    general = NgramTables.load(artifact / "ngram.npz")
    rows = []
    for own in own_sets.own_sets(arguments.data, arguments.sets):
        rows.append(measure(own, general))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    columns = (
        "records", "raw", "zstd", "brotli", "zstd_dict", "ngram", "mixture", "stored",
        "of_zstd_dict", "worst", "table", "fit_s", "encode_s_a_mb", "decode_s_a_mb",
    )  # fmt: skip
    sheet.table(
        "bytes a record, codecs fitted to the set's first part",
        ["set", *columns],
        [[row["set"], *(row[column] for column in columns)] for row in rows],
    )
    paper.finish({"sets": rows})


if __name__ == "__main__":
    main()
