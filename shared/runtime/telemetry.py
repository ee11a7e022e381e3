"""Traces and metrics. Context travels in the header `traceparent`; names and labels never hold a subject or an id."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, TraceFlags

TRACEPARENT: Final = "traceparent"
_MAX_LINKS: Final = 64  # enough to find the neighbours of a batch; the default exporter limit is 128


def configure(service: str) -> None:
    """Meters always (they feed /metrics); traces only where an OTLP endpoint is named, which costs memory and time.

    A second call in one process keeps the first set-up, as OpenTelemetry allows one provider only.
    """
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    if isinstance(metrics.get_meter_provider(), MeterProvider):
        return
    resource = Resource.create({SERVICE_NAME: f"tidegate-{service}"})
    metrics.set_meter_provider(MeterProvider(metric_readers=[PrometheusMetricReader()], resource=resource))
    if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider(resource=resource)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)


def current_traceparent() -> str | None:
    """The W3C header value of the span that is current now; None where nothing is traced."""
    span = trace.get_current_span().get_span_context()
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}" if span.is_valid else None


def with_trace(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers with the current context; one that is there already is kept."""
    traceparent = current_traceparent()
    return headers if traceparent is None or TRACEPARENT in headers else {**headers, TRACEPARENT: traceparent}


@contextmanager
def batch_span(name: str, batch: Iterable[Mapping[str, str]]) -> Iterator[None]:
    """One span for a batch of messages, linked to the spans that sent them.

    A batch whose messages belong to one trace continues that trace; a mixed one starts its own.
    """
    parents = list(dict.fromkeys(filter(None, (headers.get(TRACEPARENT) for headers in batch))))
    if not parents:
        with trace.get_tracer("tidegate").start_as_current_span(name, kind=SpanKind.CONSUMER):
            yield
        return
    contexts = [context for context in map(_parse, parents[:_MAX_LINKS]) if context.is_valid]
    one_trace = len({context.trace_id for context in contexts}) == 1 and len(parents) <= _MAX_LINKS
    parent = trace.set_span_in_context(NonRecordingSpan(contexts[0])) if one_trace else None
    links = [Link(context) for context in contexts]
    with trace.get_tracer("tidegate").start_as_current_span(name, parent, SpanKind.CONSUMER, links=links):
        yield


def _parse(traceparent: str) -> SpanContext:
    """The span that a `traceparent` names; an invalid one for text that is not of that form."""
    try:
        _, trace_id, span_id, flags = traceparent.split("-")
        return SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)))
    except ValueError:
        return SpanContext(0, 0, True)
