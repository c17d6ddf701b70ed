"""Consumes a topic as a member of a group, and prints what comes."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from engine.clients.cluster import Cluster
from engine.clients.connection import warn
from engine.clients.consumer import EVERYTHING, Consumer, Wanted
from store.message.record import Message
from tools.common.exit_codes import ExitCode
from tools.common.message_text import as_json as json_of
from tools.common.message_text import body_shown, escaped, inner_messages
from tools.common.tls import tls_of


def consume(
    group: str,
    topic: str,
    name_servers: str,
    broker: str | None,
    tls_config: str | None,
    timeout: float,
    tags: str,
    begin: str | int,
    count: int | None,
    follow: bool,
    as_json: bool,
) -> int:
    """Consume until the end; Ctrl-C commits what was printed. Return FOUND where a body was not printed.

    Raises ClientError, PeerRefused, PeerUnreachable.
    """
    cluster = Cluster(name_servers, broker, timeout, tls_of(tls_config))
    consumer = Consumer(cluster, Wanted(group, topic, tags.strip() or EVERYTHING, begin))
    with suppress(KeyboardInterrupt):
        is_whole = asyncio.run(_print(cluster, consumer, count, follow, as_json))
        return ExitCode.WELL if is_whole else ExitCode.FOUND
    return ExitCode.INTERRUPTED if not follow else ExitCode.WELL


async def _print(cluster: Cluster, consumer: Consumer, count: int | None, follow: bool, as_json: bool) -> bool:
    """Whether every body could be printed."""
    is_whole = True
    try:
        await consumer.start()
        async for message in consumer.messages(count, follow=follow):
            text = f"{json_of(message)}\n" if as_json else _text(message)
            is_whole &= text is not None
            sys.stdout.write(text or "")
            sys.stdout.flush()
        return is_whole
    finally:
        await consumer.stop()
        await cluster.close()


def _text(message: Message) -> str | None:
    """Return what is printed of a message; None, and a word on standard error, where its body cannot be."""
    inner = inner_messages(message)
    if inner is not None:
        texts = [_text(each) for each in inner]
        return None if None in texts else "".join(filter(None, texts))
    body, problem = body_shown(message)
    if problem:
        place = f"{message.topic}/{message.queue_id}#{message.queue_offset}"
        warn(f"{escaped(place)}: {problem}; its body is not printed; --json shows it as stored")
        return None
    text = body.decode("utf-8", "replace")
    return f"{escaped(text) if sys.stdout.isatty() else text}\n"
