"""OpenTelemetry: spans of sent and processed messages, with the W3C trace context in the messages' properties.

    result = traced_send(producer.send, "orders", b"17", tags="paid")

    for message in consumer:
        with processing(message):
            ...

Names and attributes are those of OpenTelemetry's semantic conventions for messaging and for RocketMQ. Spans are those
of the program's global tracer provider, and the properties those of its global propagator: `traceparent`, `tracestate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from opentelemetry import propagate, trace
from opentelemetry.trace import Link, Span, SpanKind

from engine.clients.consuming.received import ReceivedMessage

T = TypeVar("T")


def traced_send(
    send: Callable[..., T],
    topic: str,
    body: bytes | str,
    *,
    properties: Mapping[str, str] | None = None,
    tags: str | None = None,
    **fields: Any,
) -> T:
    """Call `send` of a Producer or RemoteProducer in a span, whose context becomes properties of the message.

    Return what it returns, and raise what it raises, which the span records. The span ends when `send` returns: of
    `send_async` before the answer.
    """
    size = len(body.encode() if isinstance(body, str) else body)
    with _span("send", topic, SpanKind.PRODUCER, size, tags, ()) as span:
        carrier = dict(properties or {})
        propagate.inject(carrier)
        sent = send(topic, body, properties=carrier, tags=tags, **fields)
        if hasattr(sent, "message_id"):
            span.set_attribute("messaging.message.id", sent.message_id)
        return sent


@contextmanager
def processing(message: ReceivedMessage) -> Iterator[Span]:
    """Run a block in a span of a received message: linked to its sender's, and below it unless another one is open."""
    sender = propagate.extract(message.properties)
    context = trace.get_current_span(sender).get_span_context()
    is_within = trace.get_current_span().get_span_context().is_valid
    links = [Link(context)] if context.is_valid else []
    size = len(message.view)
    above = None if is_within else sender
    with _span("process", message.topic, SpanKind.CONSUMER, size, message.tags, links, above) as span:
        span.set_attribute("messaging.message.id", message.message_id)
        span.set_attribute("messaging.consumer.group.name", message.group)
        span.set_attribute("messaging.destination.partition.id", str(message.queue_id))
        if message.keys:
            span.set_attribute("messaging.rocketmq.message.keys", message.keys)
        yield span


@contextmanager
def _span(
    operation: str, topic: str, kind: SpanKind, size: int, tags: str | None, links: Any, context: Any = None
) -> Iterator[Span]:
    attributes: dict[str, Any] = {
        "messaging.system": "rocketmq",
        "messaging.destination.name": topic,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.message.body.size": size,
    }
    if tags is not None:
        attributes["messaging.rocketmq.message.tag"] = tags
    begin = trace.get_tracer("slipstream").start_as_current_span
    with begin(f"{operation} {topic}", context, kind, attributes, links) as span:
        try:
            yield span
        except Exception as error:
            span.set_attribute("error.type", getattr(error, "code", type(error).__qualname__))
            raise
