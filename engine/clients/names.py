"""The names that a client is given: of groups and of servers, checked as RocketMQ's clients check them."""

from __future__ import annotations

import logging

from engine.errors import EngineError
from store.message.topics import TOPIC_PATTERN

MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # of an answer with another shape
log = logging.getLogger("slipstream.clients")  # what a program should know and no call raises
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
