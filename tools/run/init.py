"""`slipstream init`: the folder of a new broker, with its properties file and the unit of a service, both commented."""

from __future__ import annotations

import getpass
import re
import shlex
import sys
from pathlib import Path

import click

from ipc.module_names import IMPORTED_FROM, PREFIX, named
from tools.common.given_path import GivenPath
from tools.common.numbers import number
from tools.common.output_form import form, json_text
from tools.common.tls import SERVERS

DEFAULT_PORT, LISTEN_PORT = 5557, 10911  # of metrics; of clients
ROLES = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")
UNIT_NAME = "slipstream.service"
USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,30}\$?|[0-9]{1,10}")  # as systemd takes them
SHOWN = (  # heading: what a first look at a broker asks for
    ("Identity", "brokerClusterName brokerName brokerId brokerRole compat"),
    ("Addresses: name servers, and the addresses that are registered there", "namesrvAddr brokerIP1 listenPort"),
    ("Replication", "brokerIP2 haListenPort haMasterAddress inSyncReplicas slaveTimeout haSecretFile"),
    ("Files", "storePathRootDir storePathCommitLog mappedFileSizeCommitLog fileReservedTime deleteWhen "
              "diskMaxUsedSpaceRatio storeGroup"),
    ("Durability", "flushDiskType flushIntervalCommitLog syncFlushTimeout"),
    ("Access", "bindAddress remotingAllowList adminAllowList haAllowList metricsAllowList"),
    ("Log: standard error or the journal, or a file; a reload applies a new logLevel",
     "logLevel logForm logFile logFileMaxBytes logFilesKept"),
    ("Metrics", "metricsExporterType metricsPromExporterHost metricsPromExporterPort"),
    ("Topics", "autoCreateTopicEnable defaultTopicQueueNums maxMessageSize"),
)  # fmt: skip
UNIT = """\
# {name}: copy to /etc/systemd/system, then `systemctl enable --now {file}`
[Unit]
Description=Slipstream broker {name}
Wants=network-online.target
After=network-online.target
RequiresMountsFor={directory}

[Service]
Type=notify
NotifyAccess=main
{user}ExecStart={command}
# Reads broker.properties again; its log says what was applied, and what needs a restart
ExecReload=/bin/sh -c 'kill -HUP $MAINPID'
Restart=on-failure
RestartSec=2
# 2: what the file says is wrong, and stays so
RestartPreventExitStatus=2
# A log is walked through behind a power cut, and a first start compiles
TimeoutStartSec=30min
TimeoutStopSec=5min
WatchdogSec=5min
# The broker stops its own processes in order
KillMode=mixed
LimitNOFILE=1048576
OOMScoreAdjust=-500
UMask=0027
# Where compiled code is kept, if the package's folder may not be written
CacheDirectory=slipstream

# Producers and Spark must see the shared memory in /dev/shm: no private one. systemd-logind deletes what a user has
# there when the user's last session ends, unless it is a system user or lingers (loginctl enable-linger USER)
ProtectSystem=strict
ReadWritePaths={directory} /dev/shm
PrivateTmp=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
# Not MemoryDenyWriteExecute: compiled kernels are loaded into memory that is written first

[Install]
WantedBy=multi-user.target
"""


@click.command()
@click.argument("directory", type=GivenPath(path_type=Path, file_okay=False))
@click.option("--role", type=click.Choice(ROLES), default=ROLES[0], help=f"brokerRole. Default: {ROLES[0]}.")
@click.option("--name", metavar="NAME", help="brokerName; a slave has its master's. Default: the folder's name.")
@click.option(
    "--id",
    "number",
    type=click.IntRange(0),
    metavar="N",
    help="brokerId: 0 for a master, a different number for each slave. Default: 0, or 1 for a slave.",
)
@number("--port", click.IntRange(3, 65534), LISTEN_PORT, "PORT", "listenPort.")
@click.option(
    "-n",
    "--namesrvAddr",
    "--namesrv",
    "namesrv",
    metavar=SERVERS,
    help="Name servers to register at, separated by `;`. Default: none.",
)
@click.option(
    "--master",
    metavar="HOST:PORT",
    help="For a slave: its master's HA port. Default: the address that the name servers give.",
)
@click.option("--user", metavar="USER", help="User the service runs as. Default: the current user.")
@form("Print one JSON object.")
def init(
    directory: Path,
    role: str,
    name: str | None,
    number: int | None,
    port: int,
    namesrv: str | None,
    master: str | None,
    user: str | None,
    as_json: bool,
) -> int:
    """Write the files of a new broker: properties and systemd unit.

    The files are DIRECTORY/broker.properties and DIRECTORY/slipstream.service; existing files are not overwritten. The
    store will be in DIRECTORY/store. Each key at its default value is a comment in the properties file.
    """
    from engine.settings.config import from_mapping

    directory = directory.absolute()
    is_slave = role == "SLAVE"
    if is_slave and not (master or namesrv):
        raise click.UsageError("a slave needs its master's address; give --master HOST:PORT or --namesrv HOST:PORT")
    if user is not None and not USER.fullmatch(user):
        raise click.UsageError(f"--user {user!r} is not a valid user name")
    if master and not is_slave:
        raise click.UsageError("--master is for a slave; also give --role SLAVE")
    given = {
        "brokerName": name or directory.name,
        "brokerId": int(is_slave) if number is None else number,
        "brokerRole": role,
        "listenPort": port,
        "storePathRootDir": directory / "store",
        "namesrvAddr": namesrv,
        "haMasterAddress": master,
        "metricsPromExporterPort": metrics_port(port),
    }
    settings = {key: str(value) for key, value in given.items() if value is not None}
    from_mapping(settings)  # refuses what the broker would refuse
    properties, unit = directory / "broker.properties", directory / UNIT_NAME
    for path in (properties, unit):
        if path.exists() or path.is_symlink():
            raise click.UsageError(f"{path} already exists and is not overwritten; use another folder, or remove it")
    directory.mkdir(parents=True, exist_ok=True)
    whose = getpass.getuser() if user is None else user
    for path, text in (
        (properties, _properties(settings)),
        (unit, unit_text(settings["brokerName"], UNIT_NAME, directory, properties, "" if whose == "root" else whose)),
    ):
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        if not as_json:
            click.echo(f"wrote {path}")
    then = f"slipstream broker -c {shlex.quote(str(properties))}"
    fields = {"properties": str(properties), "unit": str(unit), "next": then}
    click.echo(json_text("init", fields) if as_json else f"next: {then}")
    return 0


def metrics_port(listen_port: int) -> int:
    """Return a port as far from RocketMQ's 5557 as listenPort is from 10911, so that brokers on one host differ."""
    beside = DEFAULT_PORT + listen_port - LISTEN_PORT
    return beside if beside > 0 else listen_port + DEFAULT_PORT


def _properties(settings: dict[str, str]) -> str:
    """Return what is given as lines, all else of `SHOWN` as comments with its default."""
    from engine.settings.key_names import BY_NAME

    lines = [
        "# Settings of a Slipstream broker, with RocketMQ's keys. Lines without `#` are set; the others show defaults."
    ]
    for heading, names in SHOWN:
        lines += ["", f"# -- {heading}"]
        for name in names.split():
            key = BY_NAME[name]
            lines.append(f"# {name}: {key.says.replace('`', '')}; {key.allowed}")
            default = "" if key.default is None else str(key.default).lower() if key.kind == "bool" else key.default
            lines.append(f"{name}={_escaped(settings[name])}" if name in settings else f"#{name}={default}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    """Escape a value for a properties file: ASCII alone, other characters as UTF-16 code units."""
    plain = value.replace("\\", "\\\\")
    units = plain.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)


def command() -> list[str]:
    """Return what starts `slipstream` as it was started now."""
    script = Path(sys.executable).with_name("slipstream")
    if script.is_file():
        return [str(script)]
    if not PREFIX:
        return ["/usr/bin/env", f"PYTHONPATH={IMPORTED_FROM}", sys.executable, "-m", named("tools.cli")]
    return [sys.executable, "-m", named("tools.cli")]


def unit_text(name: str, file: str, directory: Path, properties: Path, user: str) -> str:
    """Return the unit of a broker; `user` is the user it runs as, empty for root."""
    started = [_quoted(word.replace("$", "$$")) for word in (*command(), "broker", "-c", str(properties))]
    return UNIT.format(
        name=_percents_kept(name),
        file=file,
        directory=_quoted(str(directory)),
        command=" ".join(started),
        user=f"User={_percents_kept(user)}\n" if user else "",
    )


def _quoted(word: str) -> str:
    """Quote a word for systemd: in quotes where it has blanks, without specifiers."""
    kept = _percents_kept(word)
    if not any(character in kept for character in " \t\"'\\;"):
        return kept
    escaped = kept.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _percents_kept(text: str) -> str:
    return text.replace("%", "%%")
