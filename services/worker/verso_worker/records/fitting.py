"""Fit tables in a process of its own: ``python -m verso_worker.records.fitting REQUEST REPLY``.

The process runs at low priority, so a request comes first, and its memory, some hundred megabytes,
goes back to the machine when it ends. Request and reply are descriptors of files, a frame in each.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

from verso_core import frame, manifest
from verso_core.errors import VersoError, error_body, from_body
from verso_core.interpreter import end_at_once, lower_priority
from verso_core.jobs import CodecPolicy
from verso_core.record import Codec
from verso_worker.records.artifact import ngram_tables
from verso_worker.records.generation import fit
from verso_worker.records.outputs import Trial, Wanted

_NICE = 10  # at 19 it gets no time where requests take all cores


def main(request: BinaryIO, reply: BinaryIO) -> None:
    """Fit what a request names, and write the result or the error."""
    lower_priority(_NICE)
    folder, wanted = _read_request(request.read())
    began = time.process_time()
    try:
        trial = fit(wanted, ngram_tables(manifest.load(folder)))
    except VersoError as error:
        reply.write(frame.pack({"error": error_body(error)}))
        return
    reply.write(pack_reply(trial, seconds=time.process_time() - began))


def pack_request(folder: Path, wanted: Wanted) -> bytes:
    """Write a request; ``folder`` is that of the artifact whose tables are extended."""
    header = {
        "folder": str(folder.resolve()),
        "stored": [[int(codec), size] for codec, size in wanted.stored],
        "chunks": wanted.chunks,
        "policy": wanted.policy,
        "serving": wanted.serving is not None,
        "force": wanted.force,
    }
    return frame.pack(header, [wanted.serving or b"", *wanted.texts])


def _read_request(data: bytes) -> tuple[Path, Wanted]:
    header, [serving, *texts] = frame.unpack(data)
    wanted = Wanted(
        texts=texts,
        stored=[(Codec(codec), size) for codec, size in header["stored"]],
        chunks=header["chunks"],
        policy=CodecPolicy(header["policy"]),
        serving=serving if header["serving"] else None,
        force=header["force"],
    )
    return Path(header["folder"]), wanted


def pack_reply(trial: Trial, *, seconds: float) -> bytes:
    """Write a reply; ``seconds`` of the processor were spent."""
    names = ("held_out", "before", "after", "size_bytes")
    header: dict[str, Any] = {name: getattr(trial, name) for name in names} | {"seconds": seconds}
    return frame.pack(header, [] if trial.packed is None else [trial.packed])


def read_reply(data: bytes) -> tuple[Trial, float]:
    """Return the result of a fit, and the seconds of the processor that it took.

    Raises:
        VersoError: the fit failed with this error.
    """
    header, blobs = frame.unpack(data)
    if "error" in header:
        raise from_body(header["error"])
    seconds = header.pop("seconds")
    return Trial(**header, packed=blobs[0] if blobs else None), seconds


if __name__ == "__main__":
    end_at_once()
    with os.fdopen(int(sys.argv[1]), "rb") as asked, os.fdopen(int(sys.argv[2]), "wb") as replied:
        main(asked, replied)
