"""The services of a compose file, each in namespaces and a root of its own, on a network that is not this machine's.

What is understood is what our file says, as `docker compose config --format json` gives it back; else it is refused.
A service's network is a bridge between namespaces, its names are those of /etc/hosts, its volumes folders.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tools.dev.packaging import layers
from tools.dev.packaging.bridge import Bridge
from tools.dev.packaging.image import Image

UNDERSTOOD = set(
    "build cap_drop command depends_on entrypoint healthcheck hostname image ipc networks pid ports profiles read_only"
    " restart security_opt shm_size stop_grace_period tmpfs ulimits volumes".split()
)
NETWORK = "10.89.7"  # seen by the services alone
SHM_BYTES = 64 << 20  # an engine's default
IDLE = ["sleep", "infinity"]
UNITS = {"h": 3600, "m": 60, "s": 1}


class CompositionRefused(ValueError):
    """The file says what is not understood here."""


def seconds_of(text: str) -> int:
    """Return the seconds of a text like `1m30s`."""
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([hms])", text))


@dataclass
class Container:
    """A running service in its namespaces."""

    name: str
    image: Image
    root: layers.Root
    shm: Path
    address: str
    network: subprocess.Popen[bytes]
    process: subprocess.Popen[bytes]
    log: Path
    ids: tuple[str, str]
    health: list[str] = field(default_factory=list)

    def first(self) -> int:
        """Number of its first process, as this machine counts."""
        children = psutil.Process(self.process.pid).children()
        return children[0].pid if children else 0

    def within(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command as `exec` does: with its namespaces, root, user and environment."""
        settings = self.image.settings
        given = [f"{name}={value}" for name, value in settings.environment.items()]
        rights = [*layers.DROP, f"--reuid={self.ids[0]}", f"--regid={self.ids[1]}", "--"]
        enter = ["nsenter", "--target", str(self.first()), "--mount", "--uts", "--ipc", "--net", "--pid", "--root"]
        return subprocess.run(
            [*enter, "env", "-i", *given, f"HOME={self._home()}", *rights, *layers.BEGIN, settings.directory, *command],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=900,
        )

    def is_healthy(self) -> bool:
        """Return whether the health command succeeds now."""
        return self.within(self.health).returncode == 0

    def stop(self, name: str, seconds: float) -> int:
        """Send a signal by its name; return the exit code."""
        os.kill(self.first(), signal.Signals[name])
        return self.process.wait(seconds)

    def _home(self) -> str:
        for line in (self.root.path / "etc" / "passwd").read_text().splitlines():
            fields = line.split(":")
            if fields[2] == self.ids[0]:
                return fields[5]
        return "/"


class Composition:
    """A context manager: what was started has ended behind it, and its mounts are gone."""

    def __init__(self, services: Mapping[str, Any], images: Mapping[str, Image], scratch: Path) -> None:
        for name, service in services.items():
            if unknown := set(service) - UNDERSTOOD:
                raise CompositionRefused(f"service {name}: {', '.join(sorted(unknown))}: not understood here")
        self._services, self._images, self._scratch = services, images, scratch
        self.running: dict[str, Container] = {}
        self._stack = contextlib.ExitStack()
        self._addresses = {name: f"{NETWORK}.{number}" for number, name in enumerate(services, start=2)}
        self._count = 0

    def __enter__(self) -> Composition:
        self._scratch.mkdir(parents=True, exist_ok=True)
        (self._scratch / "hosts").write_text(
            "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in self._addresses.items())
        )
        self._bridge = Bridge(self._idle("--net").pid, NETWORK)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def start(self, name: str, command: list[str] | None = None) -> Container:
        """A service, or another command in place of its own; what it depends on is the caller's."""
        service, image = self._services[name], self._images[name]
        self._count += 1
        here = self._scratch / f"{name}-{self._count}"
        root = layers.Root(here / "root", image.layers, here / "changes")
        root.mount()
        self._stack.callback(root.unmount)
        ids = layers.ids_of(root.path, image.settings.user)
        shared, of = self._owner(service, "ipc"), self._owner(service, "pid")
        shm = shared.shm if shared else self._shm(here, int(service.get("shm_size", SHM_BYTES)))
        layers.mount("--bind", shm, root.path / "dev" / "shm")
        root.show(self._scratch / "hosts", "/etc/hosts")
        for target in service.get("tmpfs", []):
            root.temporary_folder(target)
        for volume in service.get("volumes", []):
            root.show(self._source(volume, root), volume["target"], is_read_only=volume.get("read_only", False))
        network = self._network(name)
        entry = service.get("entrypoint") or image.settings.entry
        words = command or [*entry, *(service.get("command") or image.settings.command)]
        log = here / "log"
        container = Container(
            name, image, root, shm, self._addresses[name], network, network, log, ids, self._health(name)
        )
        inner = layers.command_in(
            root,
            words,
            environment={**image.settings.environment, "HOME": container._home()},
            ids=ids,
            directory=image.settings.directory,
            host=service.get("hostname", name),
            is_read_only=service.get("read_only", False),
            drops_rights=True,
        )
        limits = service.get("ulimits", {}).get("nofile")
        granted = [str(layers.files_allowed(limits[kind])) for kind in ("soft", "hard")] if limits else []
        limited = ["prlimit", f"--nofile={':'.join(granted)}"] if limits else []
        joined = ["nsenter", f"--net=/proc/{network.pid}/ns/net"]
        joined += ["--no-fork", f"--pid=/proc/{of.first()}/ns/pid"] if of else []
        joined += [f"--ipc=/proc/{shared.first()}/ns/ipc"] if shared else []
        fresh = (
            ["--mount", "--uts", "--fork", "--kill-child"] + ([] if of else ["--pid"]) + ([] if shared else ["--ipc"])
        )
        with log.open("wb") as to:
            container.process = subprocess.Popen(
                [*joined, *limited, "unshare", *fresh, *inner], stdin=subprocess.DEVNULL, stdout=to, stderr=to
            )
        self._stack.callback(_kill, container.process)
        self.running[name] = container
        return container

    def _owner(self, service: Mapping[str, Any], kind: str) -> Container | None:
        """Return the service whose namespace of a kind this one shares; None without one."""
        whose, _colon, name = service.get(kind, "").partition(":")
        return self.running[name] if whose == "service" else None

    def _health(self, name: str) -> list[str]:
        test = self._services[name].get("healthcheck", {}).get("test")
        return test[1:] if test else self._images[name].settings.health

    def _shm(self, here: Path, size: int) -> Path:
        folder = here / "shm"
        folder.mkdir()
        layers.mount("-t", "tmpfs", "-o", f"mode=1777,nosuid,nodev,size={size}", "tmpfs", folder)
        self._stack.callback(subprocess.run, ["umount", str(folder)], check=True)
        return folder

    def _source(self, volume: Mapping[str, Any], root: layers.Root) -> Path:
        """A named volume begins as the image's folder: with its owner."""
        if volume["type"] == "bind":
            return Path(str(volume["source"]))
        folder = self._scratch / "volumes" / str(volume["source"])
        if not folder.exists():
            folder.mkdir(parents=True)
            like = (root.path / volume["target"][1:]).stat()
            os.chown(folder, like.st_uid, like.st_gid)
            folder.chmod(like.st_mode & 0o7777)
        return folder

    def _network(self, name: str) -> subprocess.Popen[bytes]:
        """A network namespace with one end of a cable to the bridge."""
        holder = self._idle("--net")
        self._bridge.plug(holder.pid, self._addresses[name])
        return holder

    def _idle(self, *kinds: str) -> subprocess.Popen[bytes]:
        """A process that keeps namespaces; it is in them when this returns."""
        holder = subprocess.Popen(["unshare", *kinds, "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE)
        self._stack.callback(_kill, holder)
        assert holder.stdout is not None
        holder.stdout.read(1)
        return holder


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()
