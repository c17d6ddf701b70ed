"""Sends lines, or a whole file, over remoting, and tells what became of them."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path

import click

from engine.clients.sending.messages import MessageFields
from engine.clients.sending.producer import RemoteProducer
from engine.clients.sending.publishing import RemoteSendResult
from engine.protocol.ha.put_status import PutMessageStatus
from tools.common.access_keys import credentials_of
from tools.common.exit_codes import ExitCode
from tools.common.how_many import how_many
from tools.common.output_form import json_text
from tools.common.tls import tls_file
from tools.run.remoting_checks import STDIN

IN_FLIGHT = 64
GROUP, SEND_OK = "slipstream-send", "SEND_OK"  # as Java's clients call PUT_OK


def send(
    file: str | None,
    topic: str,
    name_servers: str,
    broker: str | None,
    tls_config: str | None,
    access_key: str | None,
    secret_key_file: str | None,
    timeout: float,
    tag: str | None,
    key: str | None,
    extra: Mapping[str, str],
    whole: bool,
    as_json: bool,
) -> int:
    """Exit code FOUND where a message is not stored as its broker is asked to. Raises ClientError,
    MessageIllegal, PeerUnreachable."""
    logging.basicConfig(format="slipstream: %(message)s", level=logging.WARNING)
    bodies = _bodies(file, whole)
    keys = credentials_of(access_key, secret_key_file)
    fields: MessageFields = {"tags": tag, "keys": key, "properties": extra}
    tls = tls_file(tls_config)
    with RemoteProducer(
        name_servers, group=GROUP, broker=broker, timeout=timeout, tls_config=tls, credentials=keys
    ) as producer:
        statuses = _send_all(producer, topic, bodies, fields, as_json)
    if not as_json:
        counts = ", ".join(f"{count:,} {status}" for status, count in statuses.items()) or "no input, nothing was sent"
        click.echo(f"{how_many(statuses.total(), 'message')} to {topic}: {counts}")
    return ExitCode.WELL if set(statuses) <= {SEND_OK} else ExitCode.FOUND


def _bodies(file: str | None, whole: bool) -> Iterator[bytes]:
    with click.open_file(STDIN, "rb") if file in (None, STDIN) else Path(str(file)).open("rb") as lines:
        if whole:
            yield lines.read()
            return
        for line in lines:
            if body := line.rstrip(b"\r\n"):
                yield body


def _send_all(
    producer: RemoteProducer, topic: str, bodies: Iterator[bytes], fields: MessageFields, as_json: bool
) -> Counter[str]:
    statuses = Counter[str]()
    under_way: deque[Future[RemoteSendResult]] = deque()
    try:
        for number, body in enumerate(bodies):
            under_way.append(producer.send_async(topic, body, **fields))
            while len(under_way) >= (IN_FLIGHT if number else 1):  # the first one makes the topic
                _collect(under_way.popleft().result(), statuses, as_json)
        while under_way:
            _collect(under_way.popleft().result(), statuses, as_json)
    finally:
        for future in under_way:
            future.cancel()
    return statuses


def _collect(sent: RemoteSendResult, statuses: Counter[str], as_json: bool) -> None:
    status = SEND_OK if sent.status is PutMessageStatus.PUT_OK else sent.status.value
    statuses[status] += 1
    if as_json:
        click.echo(json_text("send", {
            "status": status, "msgId": sent.message_id, "offsetMsgId": sent.offset_message_id,
            "brokerName": sent.broker, "queueId": sent.queue_id, "queueOffset": sent.queue_offset,
        }))  # fmt: skip
