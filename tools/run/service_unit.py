"""The systemd unit of a broker, as text."""

from __future__ import annotations

import sys
from pathlib import Path

from ipc.module_names import IMPORTED_FROM, PREFIX, named

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
