"""Sends lines, or a whole file, over remoting, and tells what became of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from engine.clients.cluster import Cluster
from engine.clients.sender import Sender, Sent
from tools.common.access_keys import credentials_of
from tools.common.exit_codes import ExitCode
from tools.common.how_many import how_many
from tools.common.output_form import json_text
from tools.common.tls import tls_of
from tools.run.remoting_checks import STDIN

IN_FLIGHT = 64


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
    """Exit code FOUND where a message is not stored as its broker is asked to. Raises ClientError, PeerUnreachable."""
    bodies = _bodies(file, whole)
    keys = credentials_of(access_key, secret_key_file)
    cluster = Cluster(name_servers, broker, timeout, tls_of(tls_config), keys)
    statuses = asyncio.run(_send_all(cluster, topic, bodies, (tag, key, extra), as_json))
    if not as_json:
        counts = ", ".join(f"{count:,} {status}" for status, count in statuses.items()) or "no input, nothing was sent"
        click.echo(f"{how_many(statuses.total(), 'message')} to {topic}: {counts}")
    return ExitCode.WELL if set(statuses) <= {"SEND_OK"} else ExitCode.FOUND


def _bodies(file: str | None, whole: bool) -> Iterator[bytes]:
    with click.open_file(STDIN, "rb") if file in (None, STDIN) else Path(str(file)).open("rb") as lines:
        if whole:
            yield lines.read()
            return
        for line in lines:
            if body := line.rstrip(b"\r\n"):
                yield body


async def _send_all(
    cluster: Cluster,
    topic: str,
    bodies: Iterator[bytes],
    labels: tuple[str | None, str | None, Mapping[str, str]],
    as_json: bool,
) -> Counter[str]:
    sender, statuses = Sender(cluster, topic), Counter[str]()
    under_way: set[asyncio.Task[Sent]] = set()
    try:
        for number, body in enumerate(bodies):
            task = asyncio.get_running_loop().create_task(sender.send(body, *labels))
            under_way.add(task)
            while len(under_way) >= (IN_FLIGHT if number else 1):  # the first one makes the topic
                under_way = await _collect(under_way, statuses, as_json)
        while under_way:
            under_way = await _collect(under_way, statuses, as_json)
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await cluster.close()
    return statuses


async def _collect(
    under_way: set[asyncio.Task[Sent]], statuses: Counter[str], as_json: bool
) -> set[asyncio.Task[Sent]]:
    done, waiting = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        sent = task.result()
        statuses[sent.status] += 1
        if as_json:
            click.echo(json_text("send", {
                "status": sent.status, "msgId": sent.message_id, "offsetMsgId": sent.offset_message_id,
                "brokerName": sent.place.broker, "queueId": sent.place.queue_id, "queueOffset": sent.queue_offset,
            }))  # fmt: skip
    return waiting
