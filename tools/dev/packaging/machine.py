"""A system with systemd as its first process, in a root, namespaces and a control group of its own.

It may neither restart the machine, nor load modules, nor set the clock, nor write kernel settings.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import psutil

from tools.dev.packaging import layers

GONE_SECONDS = 60.0
NOT_ALLOWED = "-sys_boot,-sys_module,-sys_rawio,-sys_time,-syslog"
MASKED = (
    "console-getty.service dev-hugepages.mount getty.target sys-fs-fuse-connections.mount sys-kernel-config.mount"
    " sys-kernel-debug.mount sys-kernel-tracing.mount systemd-logind.service systemd-sysctl.service"
).split()
# $1: the root; $2: the control group. What is mounted here is gone with the mount namespace
BOOT = """
set -e
root=$1
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
if [ -e "$root/proc/sysrq-trigger" ]; then mount --bind /dev/null "$root/proc/sysrq-trigger"; fi
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$root/sys/fs/cgroup"
ip link set lo up
hostname unit-check
cd "$root"
pivot_root . .
umount -l .
exec chroot . env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    setpriv --bounding-set="$2" /lib/systemd/systemd --system --log-target=journal --show-status=0
"""
NEW = ["--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--fork", "--kill-child"]


class Machine:
    """A context manager: runs while it is entered; behind it no process, mount or group is left."""

    def __init__(self, root: layers.Root, scratch: Path) -> None:
        self._root, self._scratch = root, scratch
        self._groups = scratch / "cgroup"
        self._group = self._groups / f"slipstream-unit-check-{os.getpid()}"

    def __enter__(self) -> Machine:
        self._groups.mkdir(parents=True)
        layers.mount("-t", "cgroup2", "cgroup2", self._groups)
        self._group.mkdir()
        devices = self._root.path / "dev"
        (devices / "pts").mkdir()
        (devices / "ptmx").symlink_to("pts/ptmx")
        self._root.temporary_folder("/dev/shm")
        layers.mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", self._root.path / "run")
        for name in MASKED:
            unit = self._root.path / "etc" / "systemd" / "system" / name
            unit.parent.mkdir(parents=True, exist_ok=True)
            unit.symlink_to("/dev/null")
        begin = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self._group)]
        boot = ["unshare", *NEW, "sh", "-c", BOOT, "sh", str(self._root.path), NOT_ALLOWED]
        self._process = subprocess.Popen([*begin, *boot], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_exc: object) -> None:
        (self._group / "cgroup.kill").write_text("1")
        self._process.kill()
        self._process.wait()
        for folder, _names, _files in os.walk(self._group, topdown=False):
            self._remove(Path(folder))
        subprocess.run(["umount", str(self._groups)], check=True)

    def first(self) -> int:
        """systemd's number outside; 0 while it is not there yet."""
        if self._process.poll() is not None:
            raise RuntimeError(f"systemd has ended: {self._process.returncode}")
        children = psutil.Process(self._process.pid).children()
        return children[0].pid if children and children[0].name() == "systemd" else 0

    def run(self, *command: str, user: str = "", of: str = "1") -> subprocess.CompletedProcess[str]:
        """A command in it, as root or as somebody; with the mounts of one of its processes."""
        target = self.first()
        if not target:
            return subprocess.CompletedProcess(command, 255, "", "it boots")
        enter = [
            "nsenter",
            "--target",
            str(target),
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--cgroup",
            "--root",
        ]
        given = ["env", "-i", "PATH=/opt/slipstream/bin:/usr/sbin:/usr/bin:/sbin:/bin", "XDG_CACHE_HOME=/var/cache"]
        there = ["nsenter", "--target", of, "--mount"] if of != "1" else []
        rights = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"] if user else []
        return subprocess.run(
            [*enter, *given, *there, *rights, *command],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=1800,
            cwd="/",
        )

    def _remove(self, folder: Path) -> None:
        """A group whose last process has just been killed is busy for a moment."""
        deadline = time.monotonic() + GONE_SECONDS
        while "populated 1" in (folder / "cgroup.events").read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        folder.rmdir()
