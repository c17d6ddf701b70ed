"""Consumes a topic as a member of a group, and prints what comes."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from store.errors import MalformedData
from store.message.compression import body_of
from store.message.inner_batch import messages_in
from store.message.record import Message, SysFlag
from tools.client.cluster import Cluster
from tools.client.consumer import EVERYTHING, Consumer, Wanted
from tools.common.exit_codes import ExitCode
from tools.common.message_text import as_json as json_of
from tools.common.message_text import escaped
from tools.common.tls import tls_of


def consume(
    group: str, topic: str, name_servers: str, broker: str | None, tls_config: str | None, timeout: float, tags: str,
    begin: str | int, count: int | None, follow: bool, as_json: bool,
) -> int:  # fmt: skip
    """Until its end; Ctrl-C commits what was printed. Raises ClientError, PeerRefused, PeerUnreachable."""
    cluster = Cluster(name_servers, broker, timeout, tls_of(tls_config))
    consumer = Consumer(cluster, Wanted(group, topic, tags.strip() or EVERYTHING, begin))
    with suppress(KeyboardInterrupt):
        asyncio.run(_print(cluster, consumer, count, follow, as_json))
        return ExitCode.WELL
    return ExitCode.INTERRUPTED if not follow else ExitCode.WELL


async def _print(cluster: Cluster, consumer: Consumer, count: int | None, follow: bool, as_json: bool) -> None:
    try:
        await consumer.start()
        async for message in consumer.messages(count, follow=follow):
            sys.stdout.write(_text(message, as_json))
            sys.stdout.flush()
    finally:
        await consumer.stop()
        await cluster.close()


def _text(message: Message, as_json: bool) -> str:
    if as_json:
        return f"{json_of(message)}\n"
    if message.sys_flag & SysFlag.INNER_BATCH:
        with suppress(MalformedData):
            return "".join(_text(each, as_json) for each in messages_in(message))
    try:
        body = bytes(body_of(message.body, message.sys_flag))
    except MalformedData:
        body = bytes(message.body)
    text = body.decode("utf-8", "replace")
    return f"{escaped(text) if sys.stdout.isatty() else text}\n"
