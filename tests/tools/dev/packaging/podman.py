"""Podman as checks call it: images of the Dockerfile, services of the compose file, and an end of all of it.

Takes root. Storage, networks and settings are its own: nothing that the machine's Podman has is seen or touched.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import psutil

from tests.harness.conditions import await_that

ROOT = Path(__file__).resolve().parents[4]
BASE, RELEASE = "docker.io/library/debian:12-slim", "bookworm"
PROGRAMS = ("podman", "runc", "netavark", "aardvark-dns", "iptables", "debootstrap")  # packages of these names
NETWORK = "slipstream_default"  # the compose file's, which names no other
FILES = 1048576  # open files, by compose.yaml and by the unit
CONMON_PROCESSES = 32768  # Podman gives its own helper no more, whose containers may not have more
HELPERS_SECONDS = 60.0
UNITS = {"h": 3600, "m": 60, "s": 1}
STORAGE = """[storage]
driver = "overlay"
graphroot = "{images}/storage"
runroot = "{images}/running"
"""
# runc runs on every kind of control groups; without systemd nothing calls health commands but the check
SETTINGS = """[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
ipcns = "shareable"
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
tmp_dir = "{images}/engine"
[network]
network_config_dir = "{images}/networks"
"""


class ServiceRefused(ValueError):
    """A service says what is not understood here."""


def files_allowed() -> int:
    """Return how many open files a process may be granted: a root without CAP_SYS_RESOURCE no more than it has."""
    tried = subprocess.run(["prlimit", f"--nofile={FILES}:{FILES}", "true"], check=False, capture_output=True)
    return FILES if tried.returncode == 0 else min(FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def processes_allowed() -> int:
    """Return how many processes a container may be granted."""
    return min(resource.getrlimit(resource.RLIMIT_NPROC)[1], CONMON_PROCESSES)


def seconds_of(text: str) -> int:
    """Return the seconds of a text like `1m30s`."""
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([hms])", text))


def _health(said: Mapping[str, Any]) -> Iterable[str]:
    kind, *command = said["test"]
    if kind != "CMD":
        raise ServiceRefused(f"healthcheck: {kind}")
    yield f"--health-cmd={json.dumps(command)}"
    for key in sorted(set(said) - {"test"}):
        yield f"--health-{key.replace('_', '-')}={said[key]}"


def _limits(said: Mapping[str, Any]) -> Iterable[str]:
    for kind, limit in said.items():
        most = files_allowed() if kind == "nofile" else limit["hard"]
        yield f"--ulimit={kind}={min(limit['soft'], most)}:{min(limit['hard'], most)}"
    yield f"--ulimit=nproc={processes_allowed()}"  # limits that are named take the place of all of the settings'


def _shared(kind: str) -> Callable[[str], Iterable[str]]:
    return lambda said: [f"--{kind}={said.replace('service:', 'container:')}"]


def _volume(said: Mapping[str, Any]) -> str:
    if said["type"] not in ("bind", "volume"):
        raise ServiceRefused(f"volume of type {said['type']}")
    return f"--volume={said['source']}:{said['target']}:{'ro' if said.get('read_only') else 'rw'}"


# The flags of `podman run` for each key of a service. The check itself builds images and waits for services.
FLAGS: Mapping[str, Callable[[Any], Iterable[str]]] = {
    "build": lambda _said: [],
    "cap_drop": lambda said: [f"--cap-drop={one}" for one in said],
    "depends_on": lambda _said: [],
    "healthcheck": _health,
    "hostname": lambda said: [f"--hostname={said}"],
    "ipc": _shared("ipc"),
    "networks": lambda said: [f"--network=slipstream_{one}" for one in said],
    "pid": _shared("pid"),
    "ports": lambda said: [f"--publish={one['host_ip']}::{one['target']}" for one in said],  # by a number that is free
    "profiles": lambda _said: [],
    "read_only": lambda said: ["--read-only", "--read-only-tmpfs=false"] if said else [],
    "restart": lambda said: [f"--restart={said}"],
    "security_opt": lambda said: [f"--security-opt={one}" for one in said],
    "shm_size": lambda said: [f"--shm-size={said}"],
    "stop_grace_period": lambda said: [f"--stop-timeout={seconds_of(said)}"],
    "tmpfs": lambda said: [f"--tmpfs={one}" for one in said],
    "ulimits": _limits,
    "volumes": lambda said: [_volume(one) for one in said],
}


def run_words(service: Mapping[str, Any]) -> list[str]:
    """Return the arguments of `podman run` for a service of `docker compose config`. Raises ServiceRefused."""
    said = {key: value for key, value in service.items() if value is not None}
    image, command = said.pop("image"), said.pop("command", [])
    if unknown := set(said) - set(FLAGS):
        raise ServiceRefused(f"{', '.join(sorted(unknown))}: not understood here")
    return [*(flag for key, value in said.items() for flag in FLAGS[key](value)), image, *command]


class Podman:
    """A context manager: behind it nothing is left but the images, where a folder for them is given."""

    def __init__(self, images: Path | None) -> None:
        self.kept, self._begun = images, time.monotonic()

    def say(self, text: str) -> None:
        """What happens now, to who waits."""
        click.echo(f"{time.monotonic() - self._begun:6.0f} s  {text}")

    def __enter__(self) -> Podman:
        path = f"{os.environ['PATH']}:/usr/lib/podman"
        if missing := [name for name in PROGRAMS if shutil.which(name, path=path) is None]:
            raise click.ClickException(f"missing: apt-get install {' '.join(missing)}")
        self.scratch = Path(tempfile.mkdtemp(prefix="slipstream-podman-", dir="/var/tmp"))  # GiB, and not in memory
        self._images = self.kept.resolve() if self.kept else self.scratch / "images"
        self._images.mkdir(parents=True, exist_ok=True)  # it remembers its folders: all are there
        told = {"images": self._images, "files": files_allowed(), "processes": processes_allowed()}
        self._environment = {**os.environ, "DISABLE_HC_SYSTEMD": "true"}
        for name, text in (("CONTAINERS_STORAGE_CONF", STORAGE), ("CONTAINERS_CONF", SETTINGS)):
            (self.scratch / name).write_text(text.format(**told))
            self._environment[name] = str(self.scratch / name)
        self("network", "create", NETWORK)
        return self

    def __exit__(self, *_exc: object) -> None:
        self.ran("rm", "--all", "--force", "--volumes", "--time", "0")
        self.ran("volume", "prune", "--force")
        self.ran("network", "rm", "--force", NETWORK)
        if self.kept is None:
            self.ran("rmi", "--all", "--force")
        await_that(lambda: not self._is_in_use(), "Podman's helpers have ended", HELPERS_SECONDS)
        shutil.rmtree(self.scratch)

    def _is_in_use(self) -> bool:
        """Return whether a container's helper is there, which tidies up behind its end and makes folders for it."""
        running = (process.info for process in psutil.process_iter(["name", "cmdline"]))
        helpers = (one["cmdline"] or [] for one in running if one["name"] in ("conmon", "podman"))
        return any(str(self._images) in word for words in helpers for word in words)

    def ran(self, *words: str, seconds: float = 1800) -> subprocess.CompletedProcess[str]:
        """What came of a command of Podman's."""
        return subprocess.run(
            ["podman", *words],
            cwd=ROOT,
            env=self._environment,
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
        )

    def __call__(self, *words: str, seconds: float = 1800) -> str:
        """Return what a command says; it has to end with 0."""
        ran = self.ran(*words, seconds=seconds)
        if ran.returncode:
            raise RuntimeError(f"podman {' '.join(words)}: {ran.returncode}\n{ran.stdout[-4000:]}{ran.stderr[-4000:]}")
        return ran.stdout.strip()

    def base(self) -> None:
        """Take the base image from its registry; where none is reached make it: Debian's smallest system."""
        if self.ran("image", "exists", BASE).returncode == 0 or self.ran("pull", "--quiet", BASE).returncode == 0:
            return
        self.say(f"no registry: debootstrap {RELEASE}")
        root, packed = self.scratch / "root", self.scratch / "base.tar"
        subprocess.run(["debootstrap", "--variant=minbase", RELEASE, root], check=True, capture_output=True)
        subprocess.run(["tar", "-C", root, "-cf", packed, "."], check=True)
        self("import", str(packed), BASE)
        shutil.rmtree(root)
        packed.unlink()

    def build(self, tag: str, *options: str) -> None:
        """Build an image; pip in it knows this machine's certificates, of which the image has nothing."""
        self.say(f"build {tag}")
        home = self.scratch / "home"  # of the builder: stands in the place of /root
        (home / ".config" / "pip").mkdir(parents=True, exist_ok=True)
        authorities = Path(ssl.get_default_verify_paths().cafile or ssl.get_default_verify_paths().openssl_cafile)
        told = [f"index-url = {os.environ['PIP_INDEX_URL']}"] if "PIP_INDEX_URL" in os.environ else []
        if authorities.is_file():
            shutil.copy(authorities, home / "authorities.crt")
            told.append("cert = /root/authorities.crt")
        (home / ".config" / "pip" / "pip.conf").write_text("\n".join(["[global]", *told, ""]))
        here = ["--network=host", "--format=docker", "--pull=false", f"--volume={home}:/root"]
        self("build", "--layers", *here, "--tag", tag, *options, ".", seconds=7200)

    def start(self, name: str, *words: str) -> None:
        """Start a container, known by its name in its network."""
        self("run", "--detach", "--name", name, *words)

    def within(self, name: str, *command: str, user: str = "") -> subprocess.CompletedProcess[str]:
        """What came of a command in a container, as its user or as another."""
        return self.ran("exec", *([f"--user={user}"] if user else []), name, *command)

    def log(self, name: str) -> str:
        """What a container has said."""
        logged = self.ran("logs", name)
        return logged.stdout + logged.stderr

    def is_healthy(self, name: str) -> bool:
        """Return whether the health command succeeds now."""
        return self.ran("healthcheck", "run", name).returncode == 0

    def stop(self, name: str) -> int:
        """Stop a container by its signal, in its time; return the exit code."""
        self("stop", name)
        return int(self.shown(name, "{{.State.ExitCode}}"))

    def shown(self, name: str, template: str) -> str:
        """What Podman knows of a container."""
        return self("inspect", "--format", template, name)


def checked(page_of: Callable[[Podman], str]) -> click.Command:
    """A command with `--ledger` and `--images`: what it does is a page."""

    @click.command(help=page_of.__doc__)
    @click.option("--ledger", type=click.Path(path_type=Path, dir_okay=False))
    @click.option(
        "--images",
        type=click.Path(path_type=Path, file_okay=False),
        help="Where images are kept for another run, which takes them.",
    )
    def main(ledger: Path | None, images: Path | None) -> None:
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # what was begun is ended, too
        with Podman(images) as podman:
            page = page_of(podman)
        click.echo("nothing is left" if images is None else f"images are left in {images}")
        if ledger is not None:
            ledger.write_text(page)

    return main
