"""Context in headers; one span per batch, linked to what sent its messages."""

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared.runtime.telemetry import batch_span, current_traceparent, with_trace

ONE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SAME = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What was traced; the process's own provider is not touched."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    [span] = exporter.get_finished_spans()
    return span


def trace_id(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}"


def test_a_batch_of_one_trace_continues_it(spans: InMemorySpanExporter) -> None:
    with batch_span("consume api", [{"traceparent": ONE}, {"traceparent": SAME}, {}]):
        carried = with_trace({"a": "b"})
    span = only(spans)
    assert (span.name, trace_id(span), len(span.links)) == ("consume api", ONE[3:35], 2)
    assert carried["traceparent"].startswith(ONE[:35])


def test_a_mixed_batch_is_linked_to_each_and_starts_a_trace_of_its_own(spans: InMemorySpanExporter) -> None:
    with batch_span("consume api", [{"traceparent": ONE}, {"traceparent": OTHER}, {"traceparent": OTHER}]):
        pass
    span = only(spans)
    assert trace_id(span) not in (ONE[3:35], OTHER[3:35])
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [ONE[3:35], OTHER[3:35]]


@pytest.mark.parametrize("wrong", ["", "nonsense", "00-0-0-01", "00-xyz-abc-01"])
def test_a_wrong_header_is_passed_over(spans: InMemorySpanExporter, wrong: str) -> None:
    with batch_span("consume api", [{"traceparent": wrong}]):
        pass
    assert only(spans).links == ()


def test_a_context_that_a_message_brings_is_kept(spans: InMemorySpanExporter) -> None:
    with batch_span("consume api", []):
        assert with_trace({"traceparent": ONE}) == {"traceparent": ONE}


def test_nothing_is_added_where_nothing_is_traced() -> None:
    assert current_traceparent() is None
    assert with_trace({"a": "b"}) == {"a": "b"}
    assert not trace.get_current_span().get_span_context().is_valid
