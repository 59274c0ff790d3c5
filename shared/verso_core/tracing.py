"""Spans across processes, by OpenTelemetry where an operator asks for them.

1. The gateway takes a caller's ``traceparent`` (W3C Trace Context) and stores its own with the job.
2. A worker or trainer that claims a slice of the job continues that trace; its calls of the engine
   and of the vector store carry the trace on.
3. Each process sends its spans to the endpoint of the standard ``OTEL_*`` environment.

Without tracing, a span costs a call and a comparison, and OpenTelemetry is not imported. Names and
attributes are ids, kinds, counts and times; never texts, vectors or keys.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider

Attribute = str | int | float | bool
HEADER = "traceparent"

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_OFF: AbstractContextManager[None] = nullcontext()
_log = logging.getLogger(__name__)
_tracer: Tracer | None = None


def configure(service: str) -> bool:
    """Send this process's spans if the environment names an endpoint; called once, by ``main``.

    Returns:
        Whether spans are sent. Without the extra ``tracing`` they are not, and a warning is logged.
    """
    environment = os.environ
    wanted = any(environment.get(name) for name in _ENDPOINTS)
    refused = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if not wanted or refused or environment.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider as Provider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        _log.warning("no traces: the extra 'tracing' is not installed")
        return False
    named = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": f"verso-{service}"}
    provider = Provider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    use(provider)
    return True


def use(provider: TracerProvider | None) -> None:
    """Make spans by the given provider; None makes no spans from now on."""
    global _tracer  # one tracer in a process
    _tracer = None if provider is None else provider.get_tracer("verso")


def span(
    name: str, *, parent: str | None = None, about: Mapping[str, Attribute] | None = None
) -> AbstractContextManager[Span | None]:
    """Make a span of a block; its context is the span, or None without tracing.

    Args:
        name: what the block does.
        parent: a ``traceparent``; by default the span around the block.
        about: attributes: ids, kinds, counts and times.
    """
    return _OFF if _tracer is None else _spanned(_tracer, name, parent, about)


def inner(name: str) -> AbstractContextManager[Span | None]:
    """Make a span of a block inside another span; without one, make none."""
    return _OFF if current() is None else span(name)


def note(
    name: str,
    *,
    seconds: float,
    parent: str | None = None,
    about: Mapping[str, Attribute] | None = None,
) -> None:
    """Make a span of the given duration that ends now."""
    if _tracer is not None:
        end_ns = time.time_ns()
        made = _tracer.start_span(
            name,
            context=_context(parent),
            attributes=about,
            start_time=end_ns - round(seconds * 1e9),
        )
        made.end(end_ns)


def current() -> str | None:
    """Return the ``traceparent`` of the span around the caller; None without tracing."""
    if _tracer is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(HEADER)


@contextmanager
def _spanned(
    tracer: Tracer, name: str, parent: str | None, about: Mapping[str, Attribute] | None
) -> Iterator[Span]:
    # An error's message may quote a text, so the SDK must not record exceptions itself.
    with tracer.start_as_current_span(
        name,
        context=_context(parent),
        attributes=about,
        record_exception=False,
        set_status_on_exception=False,
    ) as made:
        try:
            yield made
        except BaseException as error:
            made.set_attribute("error.type", getattr(error, "code", type(error).__name__))
            raise


def _context(parent: str | None) -> Context | None:
    if not parent:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({HEADER: parent})
