"""Run the gateway: ``python -m verso_gateway``.

On SIGTERM or SIGINT it accepts no new connections, answers waiting callers with 202, ends event
streams so that their readers reconnect elsewhere, and finishes the open requests.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from types import FrameType

import uvicorn
from fastapi import FastAPI
from prometheus_client import start_http_server
from pydantic import ValidationError

from verso_core import telemetry, tracing
from verso_core.interpreter import freeze_loaded, return_freed, share_interpreter
from verso_core.settings import faults
from verso_gateway import connections
from verso_gateway.app import create_app
from verso_gateway.ports import listen
from verso_gateway.settings import Settings


class _Server(uvicorn.Server):
    """Signals a stop to the application at once; uvicorn would once all callers have left."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, _frame: FrameType | None) -> None:
        """Handle a stop signal."""
        context = getattr(self._app.state, "context", None)
        if context is not None:
            context.closing.set()
        # uvicorn's own raises the signal again at the end: an orderly stop would look like a death
        # by signal
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def main() -> int:
    """Serve until a stop signal; return the exit status, 2 for invalid settings."""
    try:
        settings = Settings()
        telemetry.configure("gateway", level=settings.log_level)  # before the first line
        if settings.audit_file is not None:
            telemetry.write_audit(settings.audit_file, "gateway")
        app = create_app(settings)
    except ValidationError as error:
        sys.stderr.writelines(f"{fault}\n" for fault in faults(error))
        return 2
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    tracing.configure("gateway")
    share_interpreter()
    return_freed()
    connections.raise_file_limit()
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        access_log=False,
        log_config=None,
        server_header=False,
        http=connections.bounded(
            head_bytes=settings.head_limit_bytes,
            head_timeout_s=settings.head_timeout_s,
            most=settings.connections_limit,
        ),
        timeout_graceful_shutdown=max(1, round(settings.shutdown_grace_s)),
    )
    server = _Server(config, app)
    if settings.metrics_port:
        try:
            start_http_server(
                settings.metrics_port, addr=settings.host, registry=app.state.metrics.registry
            )
        except OSError as error:
            sys.stderr.write(f"VERSO_METRICS_PORT: {error.strerror}: {settings.metrics_port}\n")
            return 1
    try:
        # uvicorn binds the only port itself
        ports = [settings.port, *settings.feed_ports] if settings.feed_ports else []
        sockets = listen(settings.host, ports)
    except OSError as error:
        sys.stderr.write(f"a port of the gateway: {error.strerror}\n")
        return 1
    freeze_loaded()
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:  # uvloop where it is
        runner.run(server.serve(sockets=sockets or None))
    return 0 if server.started else 1
