"""Checks the arguments of `slipstream send` and `consume` before asyncio is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping

from engine.clients.names import ClientError, check_group, places
from store.message.properties import RESERVED_NAMES
from tools.common.access_keys import credentials_of

STDIN = "-"


def send(
    file: str | None,
    name_servers: str,
    broker: str | None,
    access_key: str | None,
    secret_key_file: str | None,
    extra: Mapping[str, str],
    **_others: object,
) -> None:
    """Check the arguments of `send`. Raises ClientError, OSError."""
    if reserved := sorted(RESERVED_NAMES & set(extra)):
        raise ClientError(f"{', '.join(reserved)}: set by RocketMQ itself; use --tag and --key for tags and keys")
    places(name_servers, broker)
    credentials_of(access_key, secret_key_file)
    if file is not None and file != STDIN:
        os.stat(file)


def consume(
    group: str,
    name_servers: str,
    broker: str | None,
    access_key: str | None,
    secret_key_file: str | None,
    **_others: object,
) -> None:
    """Check the arguments of `consume`. Raises ClientError, OSError."""
    places(name_servers, broker)
    credentials_of(access_key, secret_key_file)
    check_group(group)
