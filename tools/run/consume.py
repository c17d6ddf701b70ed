"""Consumes topics as a member of a group, and prints what comes."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from datetime import UTC, datetime

import click

from engine.clients.consuming.consumer import Consumer
from engine.clients.consuming.requests import EVERYTHING
from store.message.record import Message
from tools.common.access_keys import credentials_of
from tools.common.exit_codes import ExitCode
from tools.common.message_text import as_json as json_of
from tools.common.message_text import body_shown, escaped, inner_messages
from tools.common.tls import tls_file

LOOK_SECONDS = 0.2
TURN = 32  # messages at a time


def consume(
    group: str,
    topic: str,
    name_servers: str,
    broker: str | None,
    tls_config: str | None,
    access_key: str | None,
    secret_key_file: str | None,
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
    logging.basicConfig(format="slipstream: %(message)s", level=logging.WARNING)
    since = datetime.fromtimestamp(begin / 1000, UTC) if isinstance(begin, int) else begin
    consumer = Consumer(
        name_servers,
        group,
        {topic: tags.strip() or EVERYTHING},
        broker=broker,
        tls_config=tls_file(tls_config),
        credentials=credentials_of(access_key, secret_key_file),
        consume_from=since,
        timeout=timeout,
    )
    with suppress(KeyboardInterrupt), consumer:
        is_whole = _print(consumer, count, follow, as_json)
        return ExitCode.WELL if is_whole else ExitCode.FOUND
    return ExitCode.INTERRUPTED if not follow else ExitCode.WELL


def _print(consumer: Consumer, count: int | None, follow: bool, as_json: bool) -> bool:
    """Whether every body could be printed."""
    is_whole, left = True, count
    while left is None or left > 0:
        messages = consumer.poll(TURN if left is None else min(TURN, left), LOOK_SECONDS)
        for message in messages:
            text = f"{json_of(message.handed.message)}\n" if as_json else _text(message.handed.message)
            is_whole &= text is not None
            sys.stdout.write(text or "")
            sys.stdout.flush()
            message.ack()
        left = None if left is None else left - len(messages)
        if not messages and not follow and consumer.is_at_end:
            break
    return is_whole


def _text(message: Message) -> str | None:
    """Return what is printed of a message; None, and a word on standard error, where its body cannot be."""
    inner = inner_messages(message)
    if inner is not None:
        texts = [_text(each) for each in inner]
        return None if None in texts else "".join(filter(None, texts))
    body, problem = body_shown(message)
    if problem:
        place = f"{message.topic}/{message.queue_id}#{message.queue_offset}"
        click.echo(
            f"slipstream: {escaped(place)}: {problem}; its body is not printed; --json shows it as stored", err=True
        )
        return None
    text = body.decode("utf-8", "replace")
    return f"{escaped(text) if sys.stdout.isatty() else text}\n"
