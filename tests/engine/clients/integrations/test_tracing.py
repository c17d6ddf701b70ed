"""Spans of sent and processed messages, by OpenTelemetry's SDK, with a broker between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind, StatusCode

from engine.clients.consuming.consumer import Consumer
from engine.clients.integrations.tracing import processing, traced_send
from engine.clients.sending.producer import RemoteProducer
from engine.errors import EngineError
from tools.common.local_broker import LocalBroker

STANDARD = {
    value
    for module in (messaging_attributes, error_attributes)
    for value in vars(module).values()
    if isinstance(value, str)
}
EXPORTER = InMemorySpanExporter()
FIRST: dict[str, Any] = {"consume_from": "first", "timeout": 120.0}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):  # a process has one, once
        trace.set_tracer_provider(provider := TracerProvider())
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    with LocalBroker(tmp_path_factory.mktemp("tracing") / "b", mappedFileSizeCommitLog=1 << 20) as broker:
        yield broker


def spans() -> list[ReadableSpan]:
    """The spans that ended since the last call."""
    ended = [*EXPORTER.get_finished_spans()]
    EXPORTER.clear()
    assert {name for span in ended for name in span.attributes} <= STANDARD
    return ended


def test_a_message_carries_the_trace_of_its_sender(broker: LocalBroker) -> None:
    spans()
    with RemoteProducer(broker=f"127.0.0.1:{broker.port}", group="p", timeout=120.0) as producer:
        for body in (b"one", "zw\u00f6lf"):
            sent = traced_send(producer.send, "orders", body, tags="a", keys=["k"], properties={"x": "y"})
    with Consumer(broker.store, "billing", "orders", **FIRST) as consumer:
        messages = []
        while len(messages) < 2:
            for message in consumer.poll():
                with processing(message):
                    messages.append(message)
    first, second, *received = spans()
    assert (first.name, first.kind, second.attributes["messaging.message.body.size"]) == (
        "send orders", SpanKind.PRODUCER, 6,
    )  # fmt: skip
    assert second.attributes["messaging.message.id"] == sent.message_id
    assert messages[0].properties["x"] == "y" and messages[0].properties["traceparent"].startswith("00-")
    by_id = {span.attributes["messaging.message.id"]: span for span in (first, second)}
    for span in received:
        sender = by_id[span.attributes["messaging.message.id"]]
        assert (span.name, span.kind) == ("process orders", SpanKind.CONSUMER)
        assert span.parent.span_id == span.links[0].context.span_id == sender.context.span_id
        assert span.context.trace_id == sender.context.trace_id
        assert span.attributes["messaging.consumer.group.name"] == "billing"
        assert span.attributes["messaging.rocketmq.message.tag"] == "a"
        assert span.attributes["messaging.rocketmq.message.keys"] == ("k",)
        assert span.attributes["messaging.operation.type"] == "process"
        assert span.attributes["messaging.destination.partition.id"].isdigit()


def test_errors_are_recorded_and_raised(broker: LocalBroker) -> None:
    spans()
    with RemoteProducer(broker=f"127.0.0.1:{broker.port}", group="p", timeout=120.0) as producer:
        with pytest.raises(EngineError):
            traced_send(producer.send, "no such topic", b"one")
        producer.send("plain", b"one")
    with Consumer(broker.store, "errors", "plain", **FIRST) as consumer:
        (message,) = consumer.poll()
        tracer = trace.get_tracer("test")
        with tracer.start_as_current_span("above"), pytest.raises(ZeroDivisionError), processing(message):
            raise ZeroDivisionError("x")
    refused, failed, above = EXPORTER.get_finished_spans()
    assert refused.attributes["error.type"] == "MESSAGE_ILLEGAL"
    assert failed.attributes["error.type"] == "ZeroDivisionError" and failed.status.status_code is StatusCode.ERROR
    assert failed.parent.span_id == above.context.span_id and not failed.links, "its sender had no trace"
