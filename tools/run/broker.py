"""`slipstream broker`: one broker in the foreground, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import click

from ipc.extras import require_arrow
from ipc.lazy_names import uncollected
from tools.common.given_path import GivenPath
from tools.common.numbers import number
from tools.run.readiness import ServiceManager, announce
from tools.run.serving_commands import START_SECONDS

if TYPE_CHECKING:
    from engine.settings.config import BrokerConfig


@click.command()
@click.option(
    "-c", "--config", "file", required=True, type=GivenPath(), metavar="FILE", help="The broker.properties file."
)
@click.option(
    "--only", "roles", multiple=True, metavar="ROLE", help="Start only this role; repeatable. Default: all roles."
)
@click.option("--detach", is_flag=True, help="Start in the background; return once the broker serves.")
@click.option(
    "--log-file",
    type=GivenPath(dir_okay=False),
    metavar="FILE",
    help="With --detach: append the broker's output to this file. Default: broker.log next to the properties file.",
)
@number(
    "--timeout",
    click.FloatRange(0),
    START_SECONDS,
    "SECONDS",
    "With --detach: give up waiting after this many seconds; the broker continues to start.",
)
def broker(file: str, roles: tuple[str, ...], detach: bool, log_file: str | None, timeout: float) -> int:
    """Run a broker until it is stopped.

    Once it serves, it writes one line that begins with `ready:` to standard output. SIGTERM and Ctrl-C stop it.

    Under systemd (Type=notify) the broker reports when it is ready and feeds the watchdog. Without a terminal, SIGHUP
    makes it read its file again; with a terminal, it stops when the terminal closes.
    With --only, it runs single roles and is not a complete broker: watch them with `slipstream counters --watch`.
    With --detach, the exit code is 0 once the broker serves, else the broker's; `slipstream stop STORE` stops it.
    """
    if log_file and not detach:
        raise click.UsageError("--log-file needs --detach; without --detach, redirect standard output")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: the supervisor forks, so it must have one thread
    with uncollected():
        from engine.settings.config import load

        config, warnings = load(file)
    if detach:
        from tools.run import detached

        return detached.start(file, config.store_path_root_dir, roles, log_file, timeout)
    if config.columnar_sidecar:
        require_arrow("columnarSidecar=true")
    from store.files.directory import StoreDirectory

    directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
    directory.create()
    directory.lock()
    _keep_log_out_of(config)
    with uncollected():  # slow to load: what stops a start is reported before
        from engine.net import log_lines
        from engine.reload import Reload
        from engine.supervisor import run_broker
        from tools.run.sidecar_role import opened as open_sidecar
    gc.freeze()  # what is loaded by now lives on

    log_lines.configure(config)
    for warning in warnings:
        click.echo(f"slipstream: warning: {warning}", err=True)
    manager = ServiceManager()

    def on_ready() -> None:
        settings = (directory.read_pointer() or {}).get("settings", {})
        port = settings.get("haListenPort", config.ha_listen_port)
        role = settings.get("brokerRole", config.broker_role)
        what = f"{role} {config.broker_name}, store {config.store_path_root_dir}, HA port {port}"
        announce(f"ready: {what}, process {os.getpid()}")
        manager.ready(what)

    return run_broker(
        config,
        directory,
        only=roles,
        on_ready=on_ready,
        on_turn=manager.beat,
        sidecar=open_sidecar,
        reload=Reload(os.path.abspath(file), manager.reloading, manager.ready),
    )


def _keep_log_out_of(config: BrokerConfig) -> None:
    """Raise StartRefused for a log file inside the store, where it could be taken for one of its files."""
    if config.log_file is None:
        return
    file = config.log_file.resolve()
    for folder in (config.store_path_root_dir, config.store_path_commit_log):
        if file.is_relative_to(folder.resolve()):
            from engine.errors import StartRefused

            raise StartRefused(f"logFile={config.log_file}", f"it is inside the store {folder}", "use another folder")
