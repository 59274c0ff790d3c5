"""The mixture codec: a collection's own texts and the general n-gram model under one coder.

1. An artifact that was fitted to a collection keeps some of the collection's texts, its *history*.
   They are counted when the artifact is opened (`history`).
2. Each decision about a text is predicted by the general model and by the history together, with
   weights fitted to that collection (`mixture_model`, `mixture_fit`).
3. The coder spends on each decision what its probability says.

Of a text like the history, little more than its values is coded. For any other text the general
model decides, and the text costs about what the n-gram codec takes. Any byte string can be coded.
All arithmetic is in integers: the payload decodes on every machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from verso_codecs import archive, coder, mixture_fit, mixture_packing
from verso_codecs import history as histories
from verso_codecs.history import END_COUNT
from verso_codecs.mixture_model import INPUT_COUNT, SELECTOR_COUNT, Mixing, Tables, read_text
from verso_codecs.mixture_packing import MAX_TEXTS_BYTES
from verso_codecs.ngram import MAX_TEXT_BYTES, NgramTables
from verso_core.errors import ArtifactInvalid

FORMAT = 1
"""Version of the model behind the tables: records of one are noise to another."""

HISTORY_BYTES = 2 << 20
"""Most bytes of texts that are kept: a second or two of counting when the artifact is opened."""

STRETCH_STEP = 16
"""Stretches of rounded tables are multiples of 1/16: finer ones code in as many bytes."""

TRACED_BYTES = 400_000
"""Most bytes of texts from which the weights are learnt; 0.4 kB of memory each."""

_VALIDATION = 0.15
_ZSTD_LEVEL = 19
_MIXING = ("stretches", "weights", "end_stretches", "end_weights")
_MEMBERS = ("format", "texts", "lengths", "clock_shift_s", *_MIXING)


@dataclass(frozen=True)
class MixtureTables:
    """Fitted tables of the mixture codec.

    texts: the history, in its order
    tables: what the kernels read
    """

    texts: tuple[bytes, ...]
    tables: Tables

    def __post_init__(self) -> None:
        """Check shapes and types, so that no kernel can read out of bounds.

        Raises:
            ArtifactInvalid: naming the member that does not fit.
        """
        mixing = self.tables.mixing
        check = partial(archive.check, "mixture tables")
        check("stretches", mixing.stretches, (np.int16, (INPUT_COUNT, 256)))
        check("weights", mixing.weights, (np.int32, (SELECTOR_COUNT, 256, INPUT_COUNT + 1)))
        check("end_stretches", mixing.end_stretches, (np.int16, (END_COUNT, 256)))
        check("end_weights", mixing.end_weights, (np.int32, (END_COUNT + 1,)))

    @property
    def size_bytes(self) -> int:
        """Memory of the counted history and the mixing; the general tables are shared."""
        arrays = [*self.tables.history, *self.tables.mixing]
        return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))

    def save(self, path: Path) -> None:
        """Write the tables as one compressed npz file without pickles; without the general ones."""
        joined = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(b"".join(self.texts))
        members: dict[str, NDArray[Any]] = {
            "format": np.array(FORMAT),
            "texts": np.frombuffer(joined, np.uint8),
            "lengths": np.array([len(text) for text in self.texts], np.uint32),
            "clock_shift_s": np.array(self.tables.history.clock_shift_s),
        }
        for name in _MIXING:
            members[name] = getattr(self.tables.mixing, name)
        archive.write(path, members)

    @classmethod
    def load(cls, path: Path, general: NgramTables) -> "MixtureTables":
        """Read tables written by `save`, and count the history.

        general: the n-gram tables of the same artifact

        Raises:
            ArtifactInvalid: when the file is missing, damaged or does not fit.
        """
        members: dict[str, Any] = archive.read(path, _MEMBERS)
        version = archive.number(members["format"], "format")
        if version != FORMAT:
            raise ArtifactInvalid(f"mixture tables: expected format {FORMAT}, got {version:g}")
        texts = _split(members["texts"], members["lengths"])
        shift = int(archive.number(members["clock_shift_s"], "clock_shift_s"))
        if abs(shift) > 86400:
            raise ArtifactInvalid(f"mixture tables: clock_shift_s: expected a day, got {shift}")
        mixing = Mixing(**{name: members[name] for name in _MIXING})
        return cls(texts, Tables(general.model, _counted(texts, clock_shift_s=shift), mixing))

    def rounded(self, step: int) -> "MixtureTables":
        """Return tables with fewer distinct numbers, which pack smaller.

        step: of the weights, in 1 / WEIGHT_ONE, from those that every fit starts from; stretches
            are rounded to STRETCH_STEP
        """
        mixing, first = self.tables.mixing, mixture_packing.first_weights()
        moved = np.rint((mixing.weights.astype(np.int64) - first) / step).astype(np.int64)
        own = mixing._replace(
            stretches=_multiples(mixing.stretches, STRETCH_STEP),
            weights=(moved * step + first).astype(np.int32),
            end_stretches=_multiples(mixing.end_stretches, STRETCH_STEP),
        )
        return MixtureTables(self.texts, self.tables._replace(mixing=own))

    def pack(self) -> bytes:
        """Return the tables as bytes, without the general ones; :meth:`unpack` reads them."""
        tables = self.tables
        parts = mixture_packing.Parts(self.texts, tables.history.clock_shift_s, tables.mixing)
        return mixture_packing.pack(parts, tables.general)

    @classmethod
    def unpack(cls, data: bytes, general: NgramTables) -> "MixtureTables":
        """Read what :meth:`pack` wrote, of this version or an earlier one; count the history.

        general: the n-gram tables that they were fitted with

        Raises:
            ArtifactInvalid: the bytes are damaged, or of a later version.
        """
        texts, shift, mixing = mixture_packing.unpack(data, general.model)
        return cls(texts, Tables(general.model, _counted(texts, clock_shift_s=shift), mixing))

    @classmethod
    def fit(cls, texts: Sequence[bytes], general: NgramTables, *, seed: int = 0) -> "MixtureTables":
        """Fit to the texts of a collection; see :meth:`fit_tried`."""
        return cls.fit_tried(texts, general, steps=(), seed=seed).tables

    @classmethod
    def fit_tried(
        cls, texts: Sequence[bytes], general: NgramTables, *, steps: Sequence[int], seed: int = 0
    ) -> "TriedTables":
        """Fit to the texts of a collection, and measure what a fit to the first of them is worth.

        texts: in the order in which they were written, as long as the chunks that will be coded;
            of more than HISTORY_BYTES the last ones and a sample of the others are used
        general: the n-gram tables of the artifact
        steps: to which tables may be rounded

        Raises:
            ValueError: when there is no text at all.
        """
        chosen = chosen_texts(texts, limit_bytes=HISTORY_BYTES)
        if not chosen:
            raise ValueError("expected at least one text that is not empty")
        shift = mixture_fit.clock_shift(chosen[-1000:])
        rate, sizes = _tried(chosen, general, clock_shift_s=shift, steps=steps, seed=seed)
        history = _empty(chosen, clock_shift_s=shift)
        seen = mixture_fit.trace(
            general.model, history, chosen, traced=mixture_fit.traced_count(chosen, TRACED_BYTES)
        )
        mixing = mixture_fit.mix(general.model, seen, rate=rate, seed=seed)
        return TriedTables(cls(tuple(chosen), Tables(general.model, history, mixing)), sizes)


@dataclass(frozen=True)
class TriedTables:
    """Fitted tables, and what the last texts take of tables that were fitted to those before.

    sizes: by the step to which those tables were rounded: about the payload bytes of each of the
        last texts, which were held out
    """

    tables: MixtureTables
    sizes: Mapping[int, tuple[float, ...]]


def chosen_texts(texts: Sequence[bytes], *, limit_bytes: int) -> list[bytes]:
    """Choose the history: the last texts, and of those before an even sample, half and half."""
    kept = [text for text in texts if text]
    sizes = np.cumsum([0, *(len(text) for text in kept)])
    total = int(sizes[-1])
    if total <= limit_bytes:
        return kept
    # The last half of the budget goes to the last texts.
    first = int(np.searchsorted(sizes, total - limit_bytes // 2))
    share = (limit_bytes // 2) / max(int(sizes[first]), 1)
    steps = np.floor(np.arange(first + 1) * share)
    return [kept[at] for at in range(first) if steps[at + 1] > steps[at]] + kept[first:]


def _tried(
    texts: Sequence[bytes],
    general: NgramTables,
    *,
    clock_shift_s: int,
    steps: Sequence[int],
    seed: int,
) -> tuple[float, dict[int, tuple[float, ...]]]:
    """Choose the learning rate on the last texts, fitting to those before.

    Returns:
        The rate, and by the step to which its tables were rounded about the payload bytes of each
        of the last texts; of none where there is but one text.
    """
    held = max(1, int(_VALIDATION * len(texts)))
    before, after = texts[:-held], texts[-held:]
    if not before:
        return mixture_fit.RATES[0], dict.fromkeys(steps, ())
    history = _empty(before, clock_shift_s=clock_shift_s)
    traced = mixture_fit.traced_count(before, TRACED_BYTES)
    seen = mixture_fit.trace(general.model, history, before, traced=traced)
    tried = {
        rate: Tables(
            general.model, history, mixture_fit.mix(general.model, seen, rate=rate, seed=seed)
        )
        for rate in mixture_fit.RATES
    }
    best = min(tried, key=lambda rate: mixture_fit.cost(tried[rate], after))
    tables = MixtureTables(tuple(before), tried[best])
    return best, {step: _sizes(tables.rounded(step).tables, after) for step in steps}


def _sizes(tables: Tables, texts: Sequence[bytes]) -> tuple[float, ...]:
    """Return about the payload bytes of each text."""
    return tuple(mixture_fit.cost(tables, [text]) / 8 for text in texts)


def _empty(texts: Sequence[bytes], *, clock_shift_s: int) -> histories.History:
    size = sum(len(text) + 1 for text in texts)
    return histories.empty(
        mixture_fit.width_for(size), size_bytes=size, clock_shift_s=clock_shift_s
    )


def _counted(texts: Sequence[bytes], *, clock_shift_s: int) -> histories.History:
    history = _empty(texts, clock_shift_s=clock_shift_s)
    histories.count_texts(history, texts)
    return history


def _multiples(stretches: NDArray[np.int16], step: int) -> NDArray[np.int16]:
    """Return the nearest multiples of a step that 16 bits hold."""
    most = np.iinfo(np.int16).max // step
    near = (stretches.astype(np.int64) + step // 2) // step
    return (np.clip(near, -most, most) * step).astype(np.int16)


def _split(packed: NDArray[Any], lengths: NDArray[Any]) -> tuple[bytes, ...]:
    if packed.dtype != np.uint8 or lengths.dtype != np.uint32 or lengths.ndim != 1:
        raise ArtifactInvalid("mixture tables: texts: expected bytes and their lengths")
    bounds = np.cumsum([0, *lengths.tolist()])
    if bounds[-1] > MAX_TEXTS_BYTES:
        raise ArtifactInvalid(f"mixture tables: texts: expected <= {MAX_TEXTS_BYTES} bytes")
    try:
        joined = zstandard.ZstdDecompressor().decompress(
            packed.tobytes(), max_output_size=int(bounds[-1])
        )
    except zstandard.ZstdError as exc:
        raise ArtifactInvalid(f"mixture tables: texts: {exc}") from exc
    if len(joined) != bounds[-1]:
        raise ArtifactInvalid(
            f"mixture tables: texts: expected {bounds[-1]} bytes, got {len(joined)}"
        )
    ends = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    return tuple(joined[begin:end] for begin, end in ends)


def encode(text: bytes, tables: MixtureTables) -> bytes:
    """Return the payload of a text."""
    return coder.encode(*mixture_fit.decisions(text, tables.tables))


def decode(payload: bytes, tables: MixtureTables, *, limit_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """Return the text of a payload.

    A corrupt payload may decode to some other text; only the record's checksum shows it.

    Raises:
        PatchCorrupt: when the text passes `limit_bytes`, or bytes follow the payload's end.
    """
    return coder.decode_text(
        partial(read_text, tables.tables),
        payload,
        codec="mixture",
        first_bytes=256 + 16 * len(payload),
        limit_bytes=limit_bytes,
    )
