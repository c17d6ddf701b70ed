"""`slipstream namesrv`, at work: a name server in the foreground, until SIGTERM or Ctrl-C.

Implements: NamesrvStartup
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import uvloop

from engine.net import log_lines
from engine.net.tls import ServerTls
from engine.protocol.access.rights import Rules
from engine.protocol.naming.live_settings import LiveSettings
from engine.protocol.naming.name_server import NameServer
from engine.remoting.name_server import ServingNames
from engine.remoting.sockets.server import ServerLimits
from engine.settings import name_server_keys
from engine.settings.config import ConfigError
from engine.settings.log_settings import LogSettings, level_text
from engine.settings.read_again import outcome, tell_warnings
from engine.shared_memory import addresses
from ipc.stop_signals import has_terminal, stop_signals
from store.files import set_aside
from store.tables import json_files, mending
from store.tables.tables import KEY_VALUES, VERSION, WIPED, DataVersion
from tools.run.readiness import ServiceManager, announce

log = logging.getLogger("slipstream.namesrv")

LIVE = {"orderMessageEnable": "order_message_enable", "supportActingMaster": "support_acting_master"}
LEVEL = "logLevel"


def serve(
    listening: socket.socket,
    compat: str,
    kv_path: Path,
    *,
    order_message_enable: bool,
    support_acting_master: bool,
    rules: Rules,
    limits: ServerLimits,
    how: ServerTls,
    log: LogSettings,
    file: NameServerFile | None = None,
) -> int:
    """Serve until a signal to stop; at SIGHUP without a terminal `file` is read again.

    Raises MalformedConfig when the key-value config is damaged and cannot be replaced.
    """
    log_lines.configure(log)
    kv, wiped = read_kept(kv_path)
    state = NameServer(
        compat,
        kv,
        order_message_enable=order_message_enable,
        support_acting_master=support_acting_master,
        shown=_shown(listening, kv_path),
        wiped=wiped,
    )
    state.settings.set_aside = lambda: ", ".join(map(os.fspath, set_aside.files_of(kv_path)))
    keeps = file.path if file else ""
    server = ServingNames(state, lambda content: write_kept(kv_path, content), limits, rules, how, keeps)
    return uvloop.run(_until_stopped(listening, compat, server, file.reader(state.settings) if file else None))


def _shown(listening: socket.socket, kv_path: Path) -> dict[str, str]:
    """Return what administrators see of the settings, under RocketMQ's names, beside those that they may change."""
    host, port, *_more = listening.getsockname()
    return {"bindAddress": host, "kvConfigPath": os.fspath(kv_path), "listenPort": str(port)}


async def _until_stopped(
    listening: socket.socket, compat: str, server: ServingNames, reload: Callable[[], str] | None
) -> int:
    stop, manager = asyncio.Event(), ServiceManager()

    def read_again() -> None:
        if reload is not None:
            manager.reloading()
            manager.ready(reload())

    for number in stop_signals():
        reads = number == signal.SIGHUP and reload is not None and not has_terminal()
        asyncio.get_running_loop().add_signal_handler(number, read_again if reads else stop.set)
    host = listening.getsockname()[0]
    at = addresses.host_and_port(host, await server.start_on(listening))
    announce(f"ready: name server on {at}, as RocketMQ {compat}, process {os.getpid()}")
    manager.ready(f"name server on {at}, as RocketMQ {compat}")
    await server.serve(stop)
    return 0


def read_kept(path: Path) -> tuple[dict[str, dict[str, str]], dict[str, DataVersion]]:
    """The key-value config that was saved, and whose write permissions were removed, with the version of their topics.

    Of a damaged file what is sound. Raises MalformedConfig.
    """
    value = mending.checked(path).value
    table, wiped = (value.get(name) or {} for name in (KEY_VALUES, WIPED))
    versions = {str(name): DataVersion.of({VERSION: version}) for name, version in wiped.items()}
    return (
        {str(name): {str(key): str(value) for key, value in of.items()} for name, of in table.items()},
        {name: version for name, version in versions.items() if version},
    )


def write_kept(path: Path, content: bytes) -> None:
    """Save what the name server keeps, durably; what the file said becomes its backup."""
    json_files.write_text(path, content)


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
