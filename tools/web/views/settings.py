"""A running broker's settings beside their defaults; what looks like a secret is not shown."""

from __future__ import annotations

import re

from engine.clients.admin import AdminClient
from engine.settings.key import Key
from engine.settings.keys import KEYS, OWN_KEYS
from store.reading import extent
from tools.web.state.asked import Asked
from tools.web.state.console import Console, Json
from tools.web.state.members import ASKING_SECONDS

SECRET = re.compile(r"secret|passw|token|credential|private|accesskey", re.IGNORECASE)
MASK = "••••••"
BY_NAME = {key.name: key for key in KEYS}
VALUE_CHARACTERS_MAX = 2000


def view(console: Console, asked: Asked) -> Json:
    """Asked of the broker itself, by remoting, so that what was changed since its start counts. Raises NoBroker."""
    running = extent.require_running(asked.store.path)
    address = str(running.settings["storeHost"])
    with AdminClient("", ASKING_SECONDS, console.how) as admin:
        settings = admin.config(address)
    rows = [_row(name, value, BY_NAME.get(name)) for name, value in settings.items()]
    return {"address": address, "settings": rows, "changed": sum(not row["isDefault"] for row in rows)}


def _row(name: str, value: str, key: Key | None) -> Json:
    default = None if key is None else _text(key.default)
    is_secret = bool(SECRET.search(name)) and value not in ("", "true", "false")
    return {
        "name": name,
        "value": MASK if is_secret else value[:VALUE_CHARACTERS_MAX],
        "default": default,
        "isDefault": key is not None and (value == default or (key.default is None and not value)),
        "isDerived": key is not None and key.default is None and bool(value),
        "isOurs": name in OWN_KEYS,
        "unit": key.unit if key is not None else "",
        "allowed": key.allowed if key is not None else "",
    }


def _text(default: str | int | bool | None) -> str:
    if default is None:
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)
