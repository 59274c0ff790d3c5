"""What an engineer would use instead: compressors of one record at a time, at their best.

Each writes the least bytes its format allows: no magic, no sizes, no checksums where they can be
left out, because the record has its own. PPMd and Brotli know nothing of other records;
Zstandard may have a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import brotli
import pyppmd
import zstandard

from verso_codecs import zstd
from verso_training.artifact.collection import HELD_OUT

_LEVELS = (3, 19)
USUAL = (4 << 10, 16 << 10, 64 << 10, 110 << 10)
"""Bytes; 110 KiB is what zstd's own tool makes unless told otherwise (`bench_dictionary.py`)."""
DICTIONARIES = (*USUAL, 200 << 10, 400 << 10)
_ORDERS = (2, 3, 4, 6)
_PPMD_MEMORY = 1 << 20
_BROTLI_WINDOW = 16
_PARAMETERS = (
    "window_log", "chain_log", "hash_log", "search_log", "min_match", "target_length", "strategy",
)  # fmt: skip


@dataclass(frozen=True)
class ByteCoder:
    """A codec of single records.

    choice: what was chosen for it on the end of the first part, for people; "" where nothing was
    decode: gives a record back; the length of the record is told, for PPMd, which needs it and is
        not charged for it
    """

    name: str
    encode: Callable[[bytes], bytes]
    decode: Callable[[bytes, int], bytes]
    choice: str = ""


def alone() -> ByteCoder:
    """Zstandard, level 19, with no dictionary."""
    return _zstandard("zstd-19", b"", 19, plain=False)


def brotli_best() -> ByteCoder:
    """Brotli at its best level; its format has a dictionary of web pages built in."""
    return ByteCoder(
        "brotli",
        lambda text: brotli.compress(text, quality=11, lgwin=_BROTLI_WINDOW),
        lambda payload, _: brotli.decompress(payload),
    )


def ppmd(fit: Sequence[bytes]) -> ByteCoder:
    """PPMd (variant H, Shkarin 2002); its order is chosen on the first part's end."""
    _, after = _cut(fit)
    sizes = {order: sum(len(_ppmd(text, order)) for text in after) for order in _ORDERS}
    best = min(sizes, key=lambda order: sizes[order])
    return ByteCoder(
        "ppmd",
        lambda text: _ppmd(text, best),
        lambda payload, size: bytes(pyppmd.Ppmd7Decoder(best, _PPMD_MEMORY).decode(payload, size)),
        f"order {best}",
    )


def with_dictionary(
    fit: Sequence[bytes], *, dictionaries: Sequence[int] = DICTIONARIES
) -> ByteCoder:
    """Zstandard with a dictionary of the set's first part.

    Size, kind (trained, or the plain end of the texts) and level are chosen on the first part's
    end; the dictionary is then made of all of it.
    """
    before, after = _cut(fit)
    sizes = {}
    for size, plain in product(dictionaries, (False, True)):
        dictionary = _dictionary(before, size, plain=plain)
        for level in _LEVELS:
            coder = _zstandard("", dictionary, level, plain=plain)
            sizes[size, plain, level] = sum(len(coder.encode(text)) for text in after)
    size, plain, level = min(sizes, key=lambda choice: sizes[choice])
    made = _dictionary(fit, size, plain=plain)
    choice = f"{size >> 10} KiB {'plain' if plain else 'trained'}, level {level}"
    return _zstandard("zstd+dict", made, level, plain=plain, choice=choice)


def _cut(fit: Sequence[bytes]) -> tuple[Sequence[bytes], Sequence[bytes]]:
    held = max(1, int(HELD_OUT * len(fit)))
    return fit[:-held], fit[-held:]


def _ppmd(text: bytes, order: int) -> bytes:
    encoder = pyppmd.Ppmd7Encoder(order, _PPMD_MEMORY)
    return bytes(encoder.encode(text) + encoder.flush())


def _dictionary(texts: Sequence[bytes], size: int, *, plain: bool) -> bytes:
    return b"\n".join(texts)[-size:] if plain else zstd.train(texts, size)


def _zstandard(
    name: str, dictionary: bytes, level: int, *, plain: bool, choice: str = ""
) -> ByteCoder:
    kind = zstandard.DICT_TYPE_RAWCONTENT if plain else zstandard.DICT_TYPE_AUTO
    data = zstandard.ZstdCompressionDict(dictionary, dict_type=kind) if dictionary else None
    coders: dict[tuple[int, ...], zstandard.ZstdCompressor] = {}

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
        # What is best for a length is the same for most; a coder reads its dictionary once.
        chosen = tuple(getattr(parameters, part) for part in _PARAMETERS)
        coder = coders.get(chosen)
        if coder is None:
            coder = zstandard.ZstdCompressor(compression_params=parameters, dict_data=data)
            coders[chosen] = coder
        return coder.compress(text)

    decoder = zstandard.ZstdDecompressor(dict_data=data, format=zstandard.FORMAT_ZSTD1_MAGICLESS)
    return ByteCoder(
        name,
        encode,
        lambda payload, size: decoder.decompress(payload, max_output_size=max(1, size)),
        choice,
    )
