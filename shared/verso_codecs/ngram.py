"""The n-gram codec: a static model of bytes, fitted once, under the arithmetic coder.

1. Before every byte one decision says whether the text ends here; then eight decisions give the
   byte. There is no length field: the ends of the fitted texts are learnt like everything else.
2. The model (`ngram_model`) predicts each decision from tables counted over training texts and
   mixed with weights learnt on held-out texts (`ngram_fit`).
3. The coder spends on each decision what its probability says.

Tables are all integers, and so is everything computed from them: the payload reads back on every
machine. Any byte string can be coded; one unlike the training texts costs up to 2 bytes a byte.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verso_codecs import archive, coder, lines, ngram_counts, ngram_fit
from verso_codecs.lines import LINE_BYTES
from verso_codecs.ngram_counts import Texts
from verso_codecs.ngram_model import (
    INPUT_COUNT,
    LENGTH_CLASSES,
    LOGIT_LIMIT,
    SELECTOR_COUNT,
    Model,
    read_text,
    write_text,
)
from verso_core.errors import ArtifactInvalid

MAX_TEXT_BYTES = 1 << 22
"""Texts are not restored beyond this size unless the caller asks for it."""

DEFAULT_WIDTHS = (12, 16, 18, 19, 19, 19, 20, 20)
"""log2 of the lines kept for the last 1..6 bytes and the two word contexts."""

_PLAIN = ("width", "stretches", "weights", "squash", "ends")


@dataclass(frozen=True)
class NgramTables:
    """Fitted tables of the n-gram codec; `model` holds the arrays the kernels read."""

    model: Model

    def __post_init__(self) -> None:
        """Check shapes, types and ranges, so that no kernel can read out of bounds.

        Raises:
            ArtifactInvalid: naming the member that does not fit.
        """
        model = self.model
        check = partial(archive.check, "n-gram tables")
        check("stretches", model.stretches, (np.int16, (INPUT_COUNT, 256)))
        check("weights", model.weights, (np.int32, (SELECTOR_COUNT, 256, INPUT_COUNT + 1)))
        check("squash", model.squash, (np.uint16, (2 * LOGIT_LIMIT + 1,)))
        check("ends", model.ends, (np.uint16, (LENGTH_CLASSES, 256)))
        for name in ("squash", "ends"):
            if not (getattr(model, name) > 0).all():
                raise ArtifactInvalid(f"n-gram tables: {name}: expected probabilities above 0")
        check("table", model.table, (np.uint8, ((1 << model.width) + 1, LINE_BYTES)))
        if model.table[-1].any():
            raise ArtifactInvalid("n-gram tables: table: expected its last line to be zero")

    def save(self, path: Path) -> None:
        """Write the tables as one compressed npz file without pickles."""
        members = lines.pack(self.model.table[:-1])
        for name in _PLAIN:
            members[name] = np.asarray(getattr(self.model, name))
        archive.write(path, members)

    @classmethod
    def load(cls, path: Path) -> "NgramTables":
        """Read tables written by `save`.

        Raises:
            ArtifactInvalid: when the file is missing, damaged or does not fit.
        """
        members: dict[str, Any] = archive.read(path, lines.MEMBERS + _PLAIN)
        width = archive.number(members["width"], "width")
        if width not in range(4, 29):
            raise ArtifactInvalid(f"n-gram tables: width: expected 4..28, got {width}")
        plain = {name: members[name] for name in _PLAIN[1:]}
        packed = {name: members[name] for name in lines.MEMBERS}
        table = lines.unpack(packed, 1 << int(width))
        return cls(Model(table=table, width=int(width), **plain))

    @classmethod
    def fit(
        cls,
        texts: Iterable[bytes],
        *,
        heldout: Iterable[bytes],
        widths: Sequence[int] = DEFAULT_WIDTHS,
        counting_width: int = 23,
        seed: int = 0,
    ) -> "NgramTables":
        """Count texts, then learn on other texts how to mix what was counted.

        With the defaults 80 MB of text take some minutes and 4 GB of memory, and the tables 64 MB
        of memory and 13 MB on disk.

        texts: as long as the chunks that will be coded, for the model learns where they end
        heldout: a few megabytes of the same kinds, none of them among `texts`
        widths: log2 of how many lines each context may keep
        counting_width: log2 of the lines counted for one context at most, 72 bytes each
        """
        counted = Texts.of(list(texts))
        table = ngram_counts.count_table(counted, widths=widths, counting_width=counting_width)
        model = ngram_fit.unmixed(table, ngram_fit.count_ends(counted))
        return cls(ngram_fit.fit_mixing(model, Texts.of(list(heldout)), seed=seed))


def encode(text: bytes, tables: NgramTables) -> bytes:
    """Return the payload of a text."""
    return coder.encode(*decisions(text, tables))


def decode(payload: bytes, tables: NgramTables, *, limit_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """Return the text of a payload.

    A corrupt payload may decode to some other text; only the record's checksum shows it.

    Raises:
        PatchCorrupt: when the text passes `limit_bytes`, or bytes follow the payload's end.
    """
    return coder.decode_text(
        partial(read_text, tables.model),
        payload,
        codec="n-gram",
        first_bytes=64 + 16 * len(payload),
        limit_bytes=limit_bytes,
    )


def decisions(text: bytes, tables: NgramTables) -> tuple[coder.Bytes, NDArray[np.uint16]]:
    """List what is coded of a text, and the probability of bit 1 at each: nine a byte, one more.

    Shape: (decisions,) each; uint8, and uint16 in units of 2^-16.
    """
    bound = 9 * len(text) + 1
    decided, chances = np.empty(bound, np.uint8), np.empty(bound, np.uint16)
    write_text(tables.model, np.frombuffer(text, np.uint8), decided, chances)
    return decided, chances
