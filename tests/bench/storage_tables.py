"""The tables of ``bench_storage``, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sheet

from verso_core.manifest import Artifact

SHOWN = (
    "zstd-19", "brotli", "ppmd", "zstd+dict", "general", "n-gram", "neural, no vector", "neural",
    "mixture",
)  # fmt: skip
TIMED = ("zstd-19", "brotli", "ppmd", "zstd+dict", "n-gram", "neural", "mixture")
_OF_NGRAM = ("ngram.npz",)
_OF_DECODER = ("decoder.onnx", "memory.onnx", "decoder_tokenizer.json", "ranks.npz")


def artifact_bytes(artifact: Artifact) -> dict[str, int]:
    """Return the bytes of an artifact that its codecs need, once for all records."""

    def size(names: Sequence[str]) -> int:
        return sum(len(artifact.data[name]) for name in names)

    return {
        "zstd dictionary": size(("zstd.dict",)),
        "n-gram tables": size(_OF_NGRAM),
        "decoder": size(_OF_DECODER),
    }


def show(rows: list[dict[str, Any]], stores: list[dict[str, Any]], artifact: Artifact) -> None:
    """Print all tables."""
    _codecs(rows)
    _views(rows)
    sheet.table(
        "kept once for all records, MB", ["what", "MB"],
        [[name, size / 1e6] for name, size in artifact_bytes(artifact).items()],
    )  # fmt: skip
    if stores:
        sheet.table(
            "bytes a record in the stores, measured",
            list(stores[0]),
            [list(row.values()) for row in stores],
        )


def _codecs(rows: list[dict[str, Any]]) -> None:
    sheet.table(
        "bytes a record",
        ["set", "records", "raw", *SHOWN, "stored", "fitted", "of zstd+dict", "worst"],
        [
            [
                row["set"], row["records"], row["raw"],
                *(row["sizes"].get(name) for name in SHOWN),
                row["stored"], row["fitted"], row["of_zstd_dict"], row["worst"],
            ]
            for row in rows
        ],
    )  # fmt: skip
    sheet.table(
        "reading back: processor seconds a MB; kB kept for the set's own tables",
        ["set", *TIMED, "mixture.npz", "zstd.dict"],
        [
            [
                row["set"],
                *(row["seconds_a_mb"].get(name) for name in TIMED),
                *(row["kept_bytes"].get(name, 0) / 1e3 for name in ("mixture.npz", "zstd.dict")),
            ]
            for row in rows
        ],
    )
    spent = [row for row in rows if row["mixture_spends"]]
    if spent:
        kinds = list(spent[0]["mixture_spends"])
        sheet.table(
            "bytes of the mixture by what they code, beside half of zstd+dict",
            ["set", *kinds, "zstd+dict / 2"],
            [
                [
                    row["set"],
                    *(row["mixture_spends"][kind] for kind in kinds),
                    row["sizes"]["zstd+dict"] / 2,
                ]
                for row in spent
            ],
        )


def _views(rows: list[dict[str, Any]]) -> None:
    sheet.table(
        "share saved by fitted records (negative: more is stored)",
        ["set", "entry", "vs vector + best rival", "vs float32 + raw", "vs raw alone"],
        [
            [
                row["set"],
                row["views"]["entry"],
                *(f"{share:.1%}" for name, share in row["views"].items() if "saved" in name),
            ]
            for row in rows
        ],
    )
