"""From an artifact to a service that may be trusted with texts.

    1. Hashes were checked by :func:`verso_core.manifest.load`; graphs are made from those bytes.
    2. The golden samples run: every text must encode to its vector, and every payload that was
       written on the publisher's machine must decode to its text on this one. That is also the
       warm-up: sessions, kernels and tokenizers have all worked once before the first call.
    3. Once all samples have passed on this machine, the first few are enough for the next start
       (:mod:`verso_worker.engine.passed`).

An artifact that fails here is refused; it never serves one wrong text.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from verso_core.errors import ArtifactInvalid, PatchCorrupt, VersoError
from verso_core.manifest import Artifact
from verso_core.record import Codec
from verso_worker.engine.decoder import Decoder
from verso_worker.engine.encoder import Encoder, Precision, halved
from verso_worker.engine.passed import CodecGate, PassedChecks
from verso_worker.engine.service import Service
from verso_worker.engine.sessions import Device, Load, Sessions, open_session
from verso_worker.engine.vocabulary import Vocabulary
from verso_worker.records.artifact import Golden, byte_codecs, golden_samples, rank_tables

_FEW = 8
_log = logging.getLogger(__name__)


def load_service(
    artifact: Artifact,
    *,
    threads: int,
    device: Device = Device.CPU,
    precision: Precision = Precision.FLOAT32,
    checks: Path | None = None,
    gate: CodecGate | None = None,
    load: Load | None = None,
) -> Service:
    """Make a service of a verified artifact.

    Args:
        artifact: from :func:`verso_core.manifest.load`.
        threads: cores one run of a graph may use.
        device: where the graphs run.
        precision: what the encoder is to compute in. Where it cannot, or where a golden sample
            then fails, the encoder computes in float32 and the log says why.
        checks: folder that keeps which checks have passed; without one all golden samples run.
        gate: if this artifact was never tried here, this gate checks its codecs later.
        load: counts the runs of these graphs with those of others on the same cores.

    Raises:
        ArtifactInvalid: a file does not match its manifest, or a golden sample fails.
    """
    codec = artifact.manifest.codec
    if codec.profile.onnxruntime != ort.__version__:
        # Not an error by itself: the margins were made for such differences, and the golden
        # samples decide.
        _log.warning(
            "artifact measured with ONNX Runtime %s, this is %s",
            codec.profile.onnxruntime,
            ort.__version__,
        )
    checked = partial(
        _checked,
        artifact,
        threads=threads,
        device=device,
        checks=checks,
        gate=gate,
        load=load or Load(),
    )
    if precision is not Precision.FLOAT32:
        try:
            return checked(precision=precision)
        except ArtifactInvalid as error:
            _log.error("no encoder in %s, float32 serves: %s", precision, error.detail)
    return checked(precision=Precision.FLOAT32)


def _checked(
    artifact: Artifact,
    *,
    threads: int,
    device: Device,
    precision: Precision,
    checks: Path | None,
    gate: CodecGate | None,
    load: Load,
) -> Service:
    """Make a service and run its golden samples."""
    settings = (str(threads), device.value, precision.value)
    passed = None if checks is None else PassedChecks(checks, settings)
    codec, space = artifact.manifest.codec, artifact.manifest.space

    def session(name: str, cores: int, *, graph: bytes | None = None) -> ort.InferenceSession:
        return open_session(
            artifact.data[name] if graph is None else graph,
            name,
            threads=cores,
            device=device,
            optimisation=codec.profile.optimisation,
        )

    lanes = threads if device is Device.CPU else 1

    def sessions(name: str, graph: bytes | None = None) -> Sessions:
        narrow = session(name, 1, graph=graph) if lanes > 1 else None
        return Sessions(session(name, threads, graph=graph), narrow, load=load)

    encoder = artifact.data["encoder.onnx"]
    if precision is Precision.FLOAT16:
        encoder = halved(encoder, "encoder.onnx")
    service = Service(
        Encoder(
            sessions("encoder.onnx", encoder),
            artifact.data["encoder_tokenizer.json"],
            space,
            lanes=lanes,
            precision=precision,
        ),
        Decoder(
            session("memory.onnx", threads),
            sessions("decoder.onnx"),
            codec,
            dim=space.dim,
        ),
        vocabulary=Vocabulary(
            artifact.data["decoder_tokenizer.json"], size=codec.vocab, max_tokens=codec.max_tokens
        ),
        tables=rank_tables(artifact),
    )
    try:
        _check(service, artifact, passed=passed, gate=gate)
    except ArtifactInvalid:
        service.close()
        raise
    return service


def _check(
    service: Service, artifact: Artifact, *, passed: PassedChecks | None, gate: CodecGate | None
) -> None:
    """Run as many golden samples as the artifact needs on this machine, the codecs' maybe later."""
    if passed is None:
        check_golden(service, artifact)
    elif passed.holds(artifact):
        check_golden(service, artifact, again=True)
    elif gate is not None and passed.first_try(artifact):
        check_golden(service, artifact, codecs=False)
        gate.defer(lambda: _check_whole(service, artifact, passed))
    else:
        _check_whole(service, artifact, passed)


def _check_whole(service: Service, artifact: Artifact, passed: PassedChecks) -> None:
    check_golden(service, artifact)
    passed.add(artifact)


def describe(
    artifact: Artifact, *, threads: int, device: Device, precision: Precision
) -> dict[str, Any]:
    """Describe the engine.

    Args:
        artifact: the artifact it serves.
        threads: cores one run of a graph may use.
        device: where the graphs run.
        precision: what the encoder computes in, which may differ from the requested precision.
    """
    manifest = artifact.manifest
    return {
        "artifact": artifact.id,
        "name": manifest.name,
        "space": manifest.space.id,
        "codec": manifest.codec.id,
        "dim": manifest.space.dim,
        "threads": threads,
        "device": device.value,
        "encoder_precision": precision.value,
        "onnxruntime": ort.__version__,
    }


def check_golden(
    service: Service, artifact: Artifact, *, again: bool = False, codecs: bool = True
) -> None:
    """Run every golden sample through the service and the byte codecs.

    Args:
        service: made of the artifact.
        artifact: a verified one.
        again: all samples have passed on this machine before: run the first few through the
            service, which warms it.
        codecs: check the codecs as well as the vectors.

    Raises:
        ArtifactInvalid: naming the first sample that fails, or what the graphs raised.
    """
    samples = golden_samples(artifact)
    if again:
        samples = _first_few(samples)
    try:
        _check_vectors(service, samples, least=artifact.manifest.tolerance.vector_cosine)
        if codecs:
            _check_neural(service, samples)
        if codecs and not again:
            _check_bytes(artifact, samples)
    except ArtifactInvalid:
        raise
    except VersoError as exc:
        cause = exc.__cause__ if exc.__cause__ is not None else exc
        raise ArtifactInvalid(f"golden samples cannot run: {exc.detail} ({cause!r})") from exc


def _first_few(samples: list[Golden]) -> list[Golden]:
    """Return the first samples, one with a neural payload among them."""
    coded = (number for number, one in enumerate(samples, start=1) if Codec.NEURAL in one.payloads)
    return samples[: max(_FEW, next(coded, len(samples)))]


def _check_vectors(service: Service, samples: Sequence[Golden], *, least: float) -> None:
    encoded = service.encode([sample.text for sample in samples])
    for number, sample in enumerate(samples, start=1):
        found = encoded.vectors[number - 1]
        wanted = sample.vector.astype(np.float32)
        cosine = float(found @ wanted / (np.linalg.norm(found) * np.linalg.norm(wanted)))
        if not cosine >= least:  # also where the graph gave NaN
            raise ArtifactInvalid(
                f"golden sample {number}: expected cosine >= {least}, got {cosine:.6f}"
            )
        if encoded.tokens[number - 1] != sample.tokens:
            raise ArtifactInvalid(
                f"golden sample {number}: expected {sample.tokens} encoder tokens, "
                f"got {encoded.tokens[number - 1]}"
            )


def _check_neural(service: Service, samples: Sequence[Golden]) -> None:
    coded = [
        (number, sample, sample.payloads[Codec.NEURAL])
        for number, sample in enumerate(samples, start=1)
        if Codec.NEURAL in sample.payloads
    ]
    if not coded:
        raise ArtifactInvalid("golden.jsonl: expected samples with a neural payload, got none")
    vectors = np.stack([sample.vector.astype(np.float32) for _, sample, _ in coded])
    payloads = [payload for _, _, payload in coded]
    service.code([sample.text for _, sample, _ in coded], vectors)  # warms the coding lane
    for disturbed in (False, True):
        texts = service.read(payloads, vectors, disturbed=disturbed)
        for (number, sample, _), text in zip(coded, texts, strict=True):
            _expect(text == sample.text, number, Codec.NEURAL)


def _check_bytes(artifact: Artifact, samples: Sequence[Golden]) -> None:
    codecs = byte_codecs(artifact)
    for coder in codecs.values():
        coder.encode(samples[0].text)  # its kernel is compiled, which the worker then finds done
    for number, sample in enumerate(samples, start=1):
        for codec, coder in codecs.items():
            if codec not in sample.payloads:
                continue
            try:
                text = coder.decode(sample.payloads[codec])
            except PatchCorrupt:
                text = None
            _expect(text == sample.text, number, codec)


def _expect(same: bool, number: int, codec: Codec) -> None:
    if not same:
        raise ArtifactInvalid(
            f"golden sample {number}: its {codec.name.lower()} payload does not decode to its text"
        )
