"""`slipstream broker`: one broker in the foreground, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import os

import click


@click.command()
@click.option("-c", "--config", "file", required=True, type=click.Path(), help="A broker.properties file.")
@click.option("--only", "roles", multiple=True, metavar="ROLE", help="Start this role and no other; may be repeated.")
def broker(file: str, roles: tuple[str, ...]) -> int:
    """Run a broker from its properties file until it is stopped.

    Warnings go to standard error. Once it serves, one line that begins with `ready:` goes to standard output.
    With --only it is no whole broker: one role, to be watched by `slipstream counters --watch` and a debugger.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: the supervisor forks, so it must have one thread
    from engine.settings.config import load

    config, warnings = load(file)
    from store.files.directory import StoreDirectory

    directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
    directory.create()
    directory.lock()
    from engine.net import log_lines
    from engine.supervisor import run_broker  # some time later: what keeps it from running is told at once

    log_lines.configure()
    for warning in warnings:
        click.echo(f"slipstream: warning: {warning}", err=True)

    def on_ready() -> None:
        settings = (directory.read_pointer() or {}).get("settings", {})
        port = settings.get("haListenPort", config.ha_listen_port)
        role = settings.get("brokerRole", config.broker_role)
        click.echo(
            f"ready: {role} {config.broker_name}, store {config.store_path_root_dir}, "
            f"HA port {port}, process {os.getpid()}"
        )

    return run_broker(config, directory, only=roles, on_ready=on_ready)
