"""The encoder's weights, shared by all heads that read tokens."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from verso_core.errors import ArtifactInvalid, HeadInvalid
from verso_core.heads import PlainWeight, WidenedWeight
from verso_core.manifest import Artifact

if TYPE_CHECKING:  # an optional library
    import onnx

Weight = WidenedWeight | PlainWeight
_ENCODER_NAME = "encoder.onnx"


class BaseWeights:
    """The encoder's widened weights by name, held once for all heads that read tokens.

    The graph of such a head names the encoder's weights and does not hold them. They are read from
    the artifact's ``encoder.onnx`` when first requested, widened as the encoder itself does (code
    times scale, float32), and given to each head's session as the same block of memory.

    Args:
        artifact: the artifact whose encoder the heads share. Its bytes are not kept; the file is
            read again and must still have the hash that the manifest names.
    """

    def __init__(self, artifact: Artifact) -> None:
        self._path = artifact.folder / _ENCODER_NAME
        self._sha256 = artifact.manifest.files[_ENCODER_NAME].sha256
        self._lock = threading.Lock()
        self._held: dict[Weight, ort.OrtValue] = {}

    def take(self, wanted: Mapping[str, Weight]) -> dict[str, ort.OrtValue]:
        """Return weights by the names that a head's graph uses for them.

        Raises:
            HeadInvalid: the encoder has no such tensor.
            ArtifactInvalid: the encoder's file has changed.
        """
        with self._lock:
            if missing := {weight for weight in wanted.values() if weight not in self._held}:
                tensors = self._tensors()
                for weight in missing:
                    value = np.ascontiguousarray(_widened(weight, tensors))
                    self._held[weight] = ort.OrtValue.ortvalue_from_numpy(value)
            return {name: self._held[weight] for name, weight in wanted.items()}

    def _tensors(self) -> dict[str, onnx.TensorProto]:
        try:
            data = self._path.read_bytes()
        except OSError as exc:
            raise ArtifactInvalid(f"expected {self._path}, got {exc.strerror}") from exc
        if hashlib.sha256(data).hexdigest() != self._sha256:
            raise ArtifactInvalid(f"{self._path} has changed since it was loaded")
        import onnx  # here, since an engine without such heads needs no parser

        graph = onnx.load_from_string(data).graph
        return {tensor.name: tensor for tensor in graph.initializer}


def _widened(weight: Weight, tensors: Mapping[str, onnx.TensorProto]) -> NDArray[np.float32]:
    from onnx import numpy_helper

    def read(name: str) -> NDArray[np.float32]:
        if name not in tensors:
            raise HeadInvalid(f"base_weights: the encoder has no tensor {name!r}")
        return numpy_helper.to_array(tensors[name]).astype(np.float32)

    if isinstance(weight, PlainWeight):
        return read(weight.tensor)
    return read(weight.codes) * read(weight.scale)
