"""A broker's settings by RocketMQ's names, as GET_BROKER_CONFIG shows them."""

from __future__ import annotations

from engine.board import addresses, live_settings
from engine.board.cursors import Board
from engine.net.listeners import bind_address
from engine.settings.config import BrokerConfig
from engine.settings.keys import KEYS


def settings_of(config: BrokerConfig, board: Board) -> dict[str, str]:
    """Those of its file, and what an administrator changed since."""
    known = {"bindAddress": bind_address(config.bind_address, config.broker_ip1), **live_settings.values(board)}
    return {key.name: _setting_text(known.get(key.name, getattr(config, key.field)), key.kind) for key in KEYS}


def _setting_text(value: object, kind: str) -> str:
    """A setting as its file could say it."""
    if value is None:
        return ""
    if isinstance(value, frozenset):
        return ";".join(f"{hour:02d}" for hour in sorted(value))
    if isinstance(value, tuple):
        return addresses.host_and_port(*value) if kind == "host_port" else ";".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
