"""A name server's file, read again while it serves (SIGHUP): what may change is changed, all else is named."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from engine.net import log_lines
from engine.protocol.naming.live_settings import LiveSettings
from engine.settings import name_server_keys
from engine.settings.config import ConfigError
from engine.settings.log_settings import level_text
from engine.settings.read_again import outcome, tell_warnings

log = logging.getLogger("slipstream.namesrv")

LIVE = {"orderMessageEnable": "order_message_enable", "supportActingMaster": "support_acting_master"}

LEVEL = "logLevel"


class NameServerFile:
    """`written`: what it said when the name server began; `flags` are stronger where they are set."""

    def __init__(self, path: str, written: Mapping[str, Any], flags: Mapping[str, bool]) -> None:
        self.path, self._written, self._flags = os.path.abspath(path), written, flags
        self._level = name_server_keys.log_settings_of(written).log_level

    def reader(self, settings: LiveSettings) -> Callable[[], str]:
        """Return the function that reads the file again for these settings, and says in a line what that came to."""
        return lambda: self._read(settings)

    def _read(self, settings: LiveSettings) -> str:
        try:
            wanted, warnings = name_server_keys.load(self.path)
        except ConfigError as error:
            log.error("SIGHUP: nothing was changed: %s", error)
            return f"nothing was changed: {error}"
        tell_warnings(log, warnings)
        before = settings.values()
        settings.set({name: self._flags[field] or wanted.get(field, False) for name, field in LIVE.items()})
        now = settings.values()
        applied = [f"{name}={str(now[name]).lower()}" for name in now if now[name] != before[name]]
        level = name_server_keys.log_settings_of(wanted).log_level
        if level != self._level:
            self._level = level
            log_lines.THRESHOLD.set(level)
            applied.append(f"{LEVEL}={level_text(level)}")
        fields = {key.name: key.field for key in name_server_keys.KEYS if key.name not in (*LIVE, LEVEL)}
        restart = [name for name, field in fields.items() if wanted.get(field) != self._written.get(field)]
        text = outcome(self.path, applied, restart)
        log.info("SIGHUP: %s", text)
        return text
