"""What a client is given by name: groups, servers and a tls.properties file, checked as RocketMQ's clients do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import EngineError
from store.message.topics import TOPIC_PATTERN

if TYPE_CHECKING:
    from engine.net.tls import RenewedContext

MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # of an answer with another shape
GROUP_LENGTH_MAX, NOBODYS_GROUP = 255, "DEFAULT_CONSUMER"


class ClientError(EngineError):
    """Raised when a topic does not exist, or no broker serves it.

    Next: `slipstream admin topicRoute -n NAMESRV -t TOPIC` lists the brokers that have the topic.
    """

    code = "CLIENT"


def places(name_servers: str, broker: str | None) -> list[str]:
    """The name servers' addresses. Raises ClientError where there is nobody to ask."""
    names = [part.strip() for part in name_servers.split(";") if part.strip()]
    if not names and not broker:
        raise ClientError("no broker given: give -n HOST:PORT of a name server, or --broker HOST:PORT")
    return names


def check_group(group: str) -> None:
    """Validators.checkGroup: brokers take any name. Raises ClientError."""
    if not TOPIC_PATTERN.fullmatch(group) or len(group) > GROUP_LENGTH_MAX or group == NOBODYS_GROUP:
        allowed = f"1 to {GROUP_LENGTH_MAX} of a-z, A-Z, 0-9, '%', '|', '_' and '-', and not {NOBODYS_GROUP}"
        raise ClientError(f"group {group[:GROUP_LENGTH_MAX]!r} is not a valid group name: {allowed}")


def tls_of(tls_config: str | os.PathLike[str] | None) -> RenewedContext | None:
    """How to connect as a tls.properties file says; None for plaintext. Raises TlsUnusable, ConfigError."""
    if tls_config is None:
        return None
    from engine.net.tls import client_tls  # seldom: it takes time to load

    return client_tls(True, Path(tls_config))
