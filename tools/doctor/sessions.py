"""Whether systemd-logind removes a broker's shared memory when its user logs out.

With `RemoveIPC=` of logind.conf, which is on unless a distribution turned it off, logind deletes all that a user has in
/dev/shm when the user's last session ends; not what root and system users have, and not where the user lingers. The
setting of the same name in a service's unit is about that service's end alone. (logind.conf(5), systemd.exec(5))
"""

from __future__ import annotations

import pwd
from pathlib import Path

SHARED = Path("/dev/shm")
USERS, LINGERING = Path("/run/systemd/users"), Path("/var/lib/systemd/linger")  # there while logind runs; who lingers
SETTINGS = tuple(Path(root, "systemd") for root in ("/usr/lib", "/run", "/etc"))  # the last one that says it counts
FILE, PARTS = "logind.conf", "logind.conf.d"
FIRST_USER = 1000  # below are system users
OFF = ("no", "n", "false", "f", "off", "0")


def user_who_takes_it(directory: Path) -> str | None:
    """The user at whose logout this directory of shared memory goes; None where nobody's does."""
    try:
        uid = directory.stat().st_uid
        if uid < FIRST_USER or not directory.is_relative_to(SHARED) or not USERS.is_dir():
            return None
        user = pwd.getpwuid(uid).pw_name
    except (OSError, KeyError):
        return None
    return None if (LINGERING / user).exists() or not removes() else user


def removes() -> bool:
    """Return whether logind removes a user's shared memory, by its configuration; True where that says nothing."""
    parts = {path.name: path for root in SETTINGS for path in sorted((root / PARTS).glob("*.conf"))}
    value = ""
    for path in [*(root / FILE for root in SETTINGS), *(parts[name] for name in sorted(parts))]:
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        said = [line.partition("=")[2].strip().lower() for line in lines if line.strip().startswith("RemoveIPC=")]
        value = said[-1] if said else value
    return value not in OFF
