"""How exactly the encoder computes: in float32, or in float16 where its space still allows that.

Records never depend on it: a record is coded against the vector that was *stored*, whatever made
that one, and the decoder's graphs always run as their artifact's profile says. Only searches could
suffer, so the artifact's golden samples judge a float16 encoder as they judge any other.
"""

from __future__ import annotations

from enum import StrEnum

from verso_core.errors import ArtifactInvalid


class Precision(StrEnum):
    """What the encoder's graph computes in."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"


def halved(graph: bytes, name: str) -> bytes:
    """Return the same graph computing in float16, inputs and outputs as before; the same every
    time.

    Weights that are stored as int8 stay so and are widened to float16. What float16 cannot hold
    becomes the nearest number that it can: the mask's -3.4e38 becomes -65504.

    Args:
        graph: the ONNX file's content.
        name: the file's name, for errors.

    Raises:
        ArtifactInvalid: the bytes are not a graph that can be rewritten.
    """
    import onnx  # here, since an engine in float32 needs neither
    from onnxruntime.transformers.float16 import convert_float_to_float16

    try:
        model = convert_float_to_float16(onnx.load_from_string(graph), keep_io_types=True)
    except Exception as exc:  # the parser's and the rewriter's errors have no common class
        raise ArtifactInvalid(f"{name}: cannot be brought to float16: {exc!r}") from exc
    halved: bytes = model.SerializeToString()
    return halved
