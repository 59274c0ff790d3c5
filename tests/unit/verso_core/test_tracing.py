"""Facts about tracing: it is off unless asked for, and a fault's message stays out of a span."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from verso_core import tracing
from verso_core.errors import NotFound


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use(provider)
    yield exporter
    tracing.use(None)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_it_is_off_and_imports_nothing_unless_the_environment_asks(
    environment: dict[str, str],
) -> None:
    probe = (
        "import sys; from verso_core import tracing\n"
        "assert not tracing.configure('gateway')\n"
        "with tracing.span('one') as span: assert span is None\n"
        "assert tracing.current() is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run(
        [sys.executable, "-c", probe],
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)} | environment,
    )


def test_a_span_goes_on_from_a_traceparent_and_hands_on_its_own(
    exporter: InMemorySpanExporter,
) -> None:
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with tracing.span("outer", parent=given):
        handed = tracing.current()
    [span] = exporter.get_finished_spans()
    assert span.context is not None
    assert handed == f"00-{given.split('-')[1]}-{span.context.span_id:016x}-01"


@pytest.mark.parametrize("parent", ["", "nonsense", "00-0-0-00", None])
def test_a_wrong_traceparent_begins_a_trace_of_its_own(
    parent: str | None, exporter: InMemorySpanExporter
) -> None:
    with tracing.span("outer", parent=parent):
        pass
    [span] = exporter.get_finished_spans()
    assert span.parent is None


def test_a_fault_is_named_by_its_code_and_not_quoted(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(NotFound), tracing.span("outer"):
        raise NotFound("the text itself")
    [span] = exporter.get_finished_spans()
    assert span.attributes == {"error.type": "not_found"}
    assert "the text itself" not in span.to_json()


def test_what_has_ended_is_noted_with_the_time_it_took(exporter: InMemorySpanExporter) -> None:
    tracing.note("done", seconds=1.5)
    [span] = exporter.get_finished_spans()
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time == 1_500_000_000
