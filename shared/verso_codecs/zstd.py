"""The zstd codec: Zstandard frames (RFC 8878) with a trained dictionary and the least header.

Magicless frames without content size, dictionary id and checksum: the record says which codec it
uses, the artifact has exactly one dictionary, and the record's own checksum covers the text.
"""

from collections.abc import Iterable

import zstandard

from verso_core.errors import ArtifactInvalid, PatchCorrupt

LEVEL = 19
"""Compression level: texts are short, so the search costs little and decoding nothing."""

MAX_TEXT_BYTES = 1 << 22
"""Texts are not restored beyond this size unless the caller asks for it."""

_FORMAT = zstandard.FORMAT_ZSTD1_MAGICLESS
_TYPICAL_BYTES = 512
_SLICE_BYTES = 256
_MAX_WINDOW_BYTES = 1 << 23  # RFC 8878, 3.1.1.1.2: every decoder supports windows up to 8 MB


def train(texts: Iterable[bytes], size_bytes: int) -> bytes:
    """Train a dictionary of at most `size_bytes` on sample texts.

    With too few or too small samples for zstd's trainer the dictionary is the end of the samples
    themselves ("raw content" dictionary), which compresses as well on such sets.
    """
    samples: list[bytes | bytearray | memoryview] = [text for text in texts if text]
    try:
        return zstandard.train_dictionary(size_bytes, samples).as_bytes()
    except zstandard.ZstdError:
        return b"\n".join(samples)[-size_bytes:]


class ZstdCodec:
    """Encodes and decodes texts with one dictionary. Safe to use from several threads."""

    def __init__(self, dictionary: bytes) -> None:
        """Take a dictionary made by `train`; empty for none.

        Raises:
            ArtifactInvalid: when zstd refuses the dictionary.
        """
        try:
            data = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
            if data is not None:
                data.precompute_compress(
                    compression_params=_parameters(_TYPICAL_BYTES, len(dictionary))
                )
        except (zstandard.ZstdError, ValueError) as exc:
            raise ArtifactInvalid(f"zstd dictionary: {exc}") from exc
        self._dictionary = data
        self._dictionary_bytes = len(dictionary)

    def encode(self, text: bytes) -> bytes:
        """Return the frame of a text."""
        # A compressor serves one thread at a time, and making one costs some microseconds.
        compressor = zstandard.ZstdCompressor(
            compression_params=_parameters(max(len(text), 1), self._dictionary_bytes),
            dict_data=self._dictionary,
        )
        return compressor.compress(text)

    def decode(self, payload: bytes, *, limit_bytes: int = MAX_TEXT_BYTES) -> bytes:
        """Return the text of a frame.

        Raises:
            PatchCorrupt: when the payload is not exactly one frame, or its text is longer than
                `limit_bytes`.
        """
        decompressor = zstandard.ZstdDecompressor(
            dict_data=self._dictionary, format=_FORMAT, max_window_size=_MAX_WINDOW_BYTES
        ).decompressobj()
        text = bytearray()
        try:
            # In slices, so that a payload of runs cannot fill the memory before it is stopped.
            for start in range(0, len(payload), _SLICE_BYTES):
                if decompressor.eof:
                    raise PatchCorrupt("zstd: expected the payload to end with its frame")
                text += decompressor.decompress(payload[start : start + _SLICE_BYTES])
                if len(text) > limit_bytes:
                    raise PatchCorrupt(f"zstd: expected at most {limit_bytes} bytes of text")
        except zstandard.ZstdError as exc:
            raise PatchCorrupt(f"zstd: {exc}") from exc
        if not decompressor.eof or decompressor.unused_data:
            raise PatchCorrupt("zstd: expected the payload to be exactly one frame")
        return bytes(text)


def _parameters(text_bytes: int, dictionary_bytes: int) -> zstandard.ZstdCompressionParameters:
    """Level parameters for texts of about this size, with everything optional left out.

    Without the dictionary's size the window would be that of the text alone, and most of the
    dictionary beyond its reach: a third more bytes on short texts.
    """
    return zstandard.ZstdCompressionParameters.from_level(
        LEVEL,
        source_size=text_bytes,
        dict_size=dictionary_bytes,
        format=_FORMAT,
        write_content_size=False,
        write_checksum=False,
        write_dict_id=False,
    )
