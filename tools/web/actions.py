"""What a page may start: checks, and a body decoded by a schema that was typed. Asked by POST, as the guard demands."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from tools.web.state.asked import Asked
from tools.web.state.console import Console, Json
from tools.web.state.errors import Refused
from tools.web.views import avro

Action = Callable[[Console, Json], Json]


def start(console: Console, said: Json) -> Json:
    """Begin a check of a store."""
    return console.jobs.start(str(said.get("kind")), _asked(console, said).store)


def cancel(console: Console, said: Json) -> Json:
    """End a check that runs."""
    return console.jobs.cancel(_asked(console, said).whole("number", 1) or 0)


def decode(console: Console, said: Json) -> Json:
    """A body as a value of an Avro schema."""
    return avro.decoded(_asked(console, said).store, said)


ACTIONS: Mapping[str, Action] = {"start": start, "cancel": cancel, "avro": decode}


def said_by(body: bytes) -> Json:
    """The object that a request has in it. Raises Refused."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Refused("send a JSON object")
    return value


def _asked(console: Console, said: Json) -> Asked:
    return Asked(console.stores, {name: str(said[name]) for name in ("store", "number") if said.get(name) is not None})
