"""Roots for programs: folders of files over each other, mounted as one, and what is run in them as in a container.

Only for a process in a mount namespace of its own (`in_own_mounts`): with it all mounts go. Takes root, and overlayfs.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

OWN_MOUNTS = "SLIPSTREAM_OWN_MOUNTS"
ENTER = ["unshare", "--mount", "--propagation", "private"]
OWN_PIDS = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
# $1: the root; the rest is run in it. The new /proc is that of the PID namespace in which this shell is.
PREPARE = """
set -e
mount -t proc -o nosuid,nodev,noexec proc "$1/proc"
if [ -n "$HOST_NAME" ]; then hostname "$HOST_NAME"; fi
if [ -n "$READ_ONLY" ]; then mount -o remount,bind,ro "$1"; fi
cd "$1"; shift
pivot_root . .
umount -l .
exec chroot . "$@"
"""
# In the root: the directory, the user and the rights
DROP = ["setpriv", "--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
BEGIN = ["sh", "-c", 'cd "$0" && exec "$@"']


def in_own_mounts() -> None:
    """Begin again in a mount namespace of our own, unless this is one; nothing mounted here is seen outside."""
    if os.environ.get(OWN_MOUNTS) != "1":
        os.environ[OWN_MOUNTS] = "1"
        arguments = [sys.executable, "-m", str(sys.modules["__main__"].__spec__.name), *sys.argv[1:]]  # type: ignore[union-attr]
        os.execvp(ENTER[0], [*ENTER, *arguments])
    for number in (signal.SIGINT, signal.SIGTERM):  # what was begun is ended by who began it
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))


def remove(folder: Path) -> None:
    """A folder with what is mounted in it, whatever that shows: nothing of that is touched."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    at = [place for line in lines if (place := line.split()[4]).startswith(f"{folder}/")]
    for place in reversed(at):
        subprocess.run(["umount", "--lazy", place], check=True)
    shutil.rmtree(folder)


def files_allowed(wanted: int) -> int:
    """Return how many open files this process may grant: a root without CAP_SYS_RESOURCE no more than its own limit."""
    tried = subprocess.run(["prlimit", f"--nofile={wanted}:{wanted}", "true"], check=False, capture_output=True)
    return wanted if tried.returncode == 0 else min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def mount(*arguments: object) -> None:
    """Call the command `mount` with these arguments."""
    subprocess.run(["mount", *map(str, arguments)], check=True)


@dataclass
class Root:
    """Folders over each other, the lowest first, seen as one at `path`; what is written goes to `changes`."""

    path: Path
    lower: Sequence[Path]
    changes: Path
    temporary: list[Path] = field(default_factory=list)

    def mount(self) -> None:
        """Make it be there, with devices and an empty /proc."""
        work = self.changes.with_name(f"{self.changes.name}.work")
        for folder in (self.path, self.changes, work):
            folder.mkdir(parents=True, exist_ok=True)
        lower = ":".join(str(folder) for folder in reversed(self.lower))
        mount("-t", "overlay", "overlay", "-o", f"lowerdir={lower},upperdir={self.changes},workdir={work}", self.path)
        devices = self.path / "dev"
        mount("-t", "tmpfs", "-o", "mode=755,nosuid", "tmpfs", devices)
        for name in DEVICES:
            (devices / name).touch()
            mount("--bind", f"/dev/{name}", devices / name)
        for name, target in (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"),
                             ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")):  # fmt: skip
            (devices / name).symlink_to(target)
        (devices / "shm").mkdir()

    def unmount(self) -> None:
        """Unmount the root, with what is mounted in it."""
        subprocess.run(["umount", "--recursive", str(self.path)], check=True)

    def show(self, source: Path, target: str, *, is_read_only: bool = False) -> None:
        """A file or a folder from outside, at a path in it."""
        at = self.path / target.lstrip("/")
        at.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            at.mkdir(exist_ok=True)
        elif not at.exists():
            at.touch()
        mount("--bind", source, at)
        if is_read_only:
            mount("-o", "remount,bind,ro", at)

    def temporary_folder(self, target: str) -> None:
        """An empty folder in memory."""
        mount("-t", "tmpfs", "-o", "mode=1777,nosuid,nodev", "tmpfs", self.path / target[1:])


def ids_of(root: Path, user: str) -> tuple[str, str]:
    """Return the user and group ids of an image's user, given by number or by a name in its own tables."""
    name, _colon, group = user.partition(":")
    for line in (root / "etc" / "passwd").read_text().splitlines():
        fields = line.split(":")
        if name in (fields[0], fields[2]):
            return fields[2], group or fields[3]
    return name, group or "0"


def command_in(
    root: Root,
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    ids: tuple[str, str] = ("0", "0"),
    directory: str = "/",
    host: str = "",
    is_read_only: bool = False,
    drops_rights: bool = False,
) -> list[str]:
    """Return what runs a command in a root, to be run itself where its namespaces are new."""
    rights = [*DROP, f"--reuid={ids[0]}", f"--regid={ids[1]}", "--"] if drops_rights else []
    given = [f"{name}={value}" for name, value in environment.items()]
    within = ["env", "-i", *given, *rights, *BEGIN, directory, *command]
    return [
        "env",
        f"HOST_NAME={host}",
        f"READ_ONLY={'1' if is_read_only else ''}",
        "sh",
        "-c",
        PREPARE,
        "sh",
        str(root.path),
        *within,
    ]


def copy_into(root: Path, sources: Sequence[Path], target: str, directory: str) -> None:
    """Copy like COPY: a folder's content, or files; `target` ends in `/`, is a folder, or names the one file."""
    at = root / str(Path(directory) / target).lstrip("/")
    if target.endswith("/") or len(sources) > 1 or at.is_dir() or sources[0].is_dir():
        at.mkdir(parents=True, exist_ok=True)
    at.parent.mkdir(parents=True, exist_ok=True)
    for source in sources:
        if source.is_dir():
            shutil.copytree(source, at, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(source, at / source.name if at.is_dir() else at)
