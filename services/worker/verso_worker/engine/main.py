"""Run the engine: ``python -m verso_worker.engine --socket PATH --artifact DIR``.

The socket appears when the model has passed its golden samples, so a client that can connect can
work. SIGTERM lets the running calls finish.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
from pathlib import Path
from typing import Any

from verso_core import manifest, telemetry, tracing
from verso_core.errors import VersoError
from verso_core.interpreter import freeze_loaded, share_interpreter
from verso_worker.engine.encoder import Precision
from verso_worker.engine.head_operations import HeadHandlers
from verso_worker.engine.heads import Heads
from verso_worker.engine.loading import describe, load_service
from verso_worker.engine.operations import handlers
from verso_worker.engine.passed import CodecGate
from verso_worker.engine.service import Service
from verso_worker.engine.sessions import Device, Load
from verso_worker.ipc.child import refuse
from verso_worker.ipc.server import Server

_CALLS = 32  # handlers at once: most of them wait for a batch

_log = logging.getLogger("verso_worker.engine")


def main() -> None:
    """Load the artifact, check it, and serve calls."""
    arguments = _arguments()
    telemetry.configure("engine")
    tracing.configure("engine")
    share_interpreter()
    gate = CodecGate()
    try:
        service, heads, info = _load(arguments, gate)
    except VersoError as exc:
        refuse(arguments.socket, exc)
    calls = handlers(service, info, gate) | HeadHandlers(heads, service).table()
    server = Server(arguments.socket, calls, threads=_CALLS)
    signal.signal(signal.SIGTERM, lambda *_: server.close())
    signal.signal(signal.SIGINT, lambda *_: server.close())
    freeze_loaded()
    _log.info("engine ready", extra={"engine": info})
    server.serve_forever()
    heads.close()
    service.close()


def _load(arguments: argparse.Namespace, gate: CodecGate) -> tuple[Service, Heads, dict[str, Any]]:
    """Load and check the artifact."""
    artifact = manifest.load(arguments.artifact)
    threads, device, load = arguments.threads, arguments.device, Load()
    service = load_service(
        artifact,
        threads=threads,
        device=device,
        precision=arguments.encoder_precision,
        checks=arguments.checks,
        gate=gate if arguments.early else None,
        load=load,
    )
    info = describe(artifact, threads=threads, device=device, precision=service.precision)
    return service, Heads(artifact, threads=threads, device=device, load=load), info


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="verso_worker.engine", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="where to listen")
    parser.add_argument("--artifact", type=Path, required=True, help="folder of the artifact")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="cores one run of a graph may use"
    )
    parser.add_argument(
        "--device", type=Device, choices=list(Device), default=Device.CPU, help="where graphs run"
    )
    parser.add_argument(
        "--encoder-precision",
        type=Precision,
        choices=list(Precision),
        default=Precision.FLOAT32,
        help="what the encoder computes in",
    )
    parser.add_argument("--checks", type=Path, help="folder that keeps which checks have passed")
    parser.add_argument(
        "--early", action="store_true", help="serve vectors before the codecs' first check is over"
    )
    return parser.parse_args()
