"""Images of a Dockerfile as folders, made step by step as an engine would, each RUN in namespaces of its own.

A base `debian:N-slim` is what debootstrap makes of that release: Debian's smallest system.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.dev.packaging import dockerfile, layers
from tools.dev.packaging.dockerfile import DockerfileRefused, Instruction, Settings, Stage, expanded

RELEASES = {"debian:12-slim": "bookworm", "debian:13-slim": "trixie"}
AUTHORITIES = "/run/authorities-of-the-builder.crt"  # trusted by this machine: for a builder behind a proxy
OF_THE_BUILDER = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PIP_INDEX_URL")


@dataclass
class Image:
    """A target, made: its files, lowest first, and what it says of containers."""

    layers: list[Path]
    settings: Settings

    def size(self) -> int:
        """Return the bytes of its files over its base's."""
        return sum(_bytes_of(folder) for folder in self.layers[1:])


@dataclass
class Builder:
    """Makes stages once. `say` is called before each step."""

    context: Path
    scratch: Path
    say: Callable[[str], None]
    arguments: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stages = dockerfile.stages_of((self.context / "Dockerfile").read_text())
        self._made: dict[str, Path] = {}

    def image(self, target: str) -> Image:
        """Build what is missing for it."""
        chain = dockerfile.chain_of(self.stages, target)
        lower = [self._base(chain[0].base)]
        for at, stage in enumerate(chain):
            if stage.name not in self._made and self._marker(stage).exists():
                self._made[stage.name] = self.scratch / "stages" / stage.name
            elif stage.name not in self._made:
                begun = time.monotonic()
                before = dockerfile.settings_of(self.stages, stage.base) if at else Settings()
                self._made[stage.name] = self._build(stage, lower, before)
                self.seconds[stage.name] = time.monotonic() - begun
            lower = [*lower, self._made[stage.name]]
        return Image(lower, dockerfile.settings_of(self.stages, target))

    def _marker(self, stage: Stage) -> Path:
        """Return the file that exists once a stage is complete."""
        return self.scratch / "whole" / stage.name

    def _base(self, name: str) -> Path:
        if name not in RELEASES:
            raise DockerfileRefused(f"FROM {name}: only {', '.join(RELEASES)} can be made here")
        folder = self.scratch / name.replace(":", "-")
        if not folder.exists():
            self.say(f"FROM {name}: debootstrap {RELEASES[name]}")
            debootstrap(RELEASES[name], folder)
        return folder

    def _build(self, stage: Stage, lower: list[Path], settings: Settings) -> Path:
        changes = self.scratch / "stages" / stage.name
        root = layers.Root(self.scratch / "mounted" / stage.name, lower, changes)
        needed = [one.flags["from"] for one in stage.instructions if "from" in one.flags]
        sources = {name: self.image(name) for name in needed}
        root.mount()
        arguments = dict[str, str]()
        try:
            for instruction in stage.instructions:
                self.say(f"{stage.name}: {instruction.word} {instruction.rest}")
                if not settings.say(instruction):
                    self._do(instruction, root, settings, arguments, sources)
        finally:
            root.unmount()
        self._marker(stage).parent.mkdir(exist_ok=True)
        self._marker(stage).touch()
        return changes

    def _do(
        self,
        one: Instruction,
        root: layers.Root,
        settings: Settings,
        arguments: dict[str, str],
        sources: dict[str, Image],
    ) -> None:
        """An instruction that does something to files, or says what later ones are given."""
        known = {**arguments, **settings.environment}
        match one.word:
            case "ARG":
                name, _is, default = one.rest.partition("=")
                arguments[name] = self.arguments.get(name, default)
            case "WORKDIR":
                settings.directory = str(Path(settings.directory) / expanded(one.rest, known))
                (root.path / settings.directory[1:]).mkdir(parents=True, exist_ok=True)
            case "COPY":
                *names, target = [expanded(word, known) for word in one.words()]
                stage = one.flags.get("from", "")
                top = self._view(stage, sources[stage]) if stage else self._context()
                layers.copy_into(root.path, [top / name.lstrip("/") for name in names], target, settings.directory)
            case "RUN":
                self.run(root, one.command(), settings, arguments)

    def run(
        self, root: layers.Root, command: list[str], settings: Settings, arguments: Mapping[str, str] | None = None
    ) -> None:
        """The network is this machine's, as a builder's is: packages come through it."""
        authorities = ssl.get_default_verify_paths().cafile or ssl.get_default_verify_paths().openssl_cafile
        given = {name: os.environ[name] for name in OF_THE_BUILDER if name in os.environ}
        environment = {"HOME": "/root", **given, **(arguments or {}), **settings.environment}
        if Path(authorities).is_file():
            environment["PIP_CERT"] = AUTHORITIES
        ids = layers.ids_of(root.path, settings.user)
        (root.path / "etc" / "resolv.conf").touch()
        bind = f'mount --bind /etc/resolv.conf "{root.path}/etc/resolv.conf"'
        if "PIP_CERT" in environment:
            (root.path / AUTHORITIES[1:]).touch()
            bind += f' && mount --bind "{authorities}" "{root.path}{AUTHORITIES}"'
        bind += f' && mount -t tmpfs tmpfs "{root.path}/dev/shm"'
        inner = layers.command_in(root, command, environment=environment, ids=ids, directory=settings.directory)
        ran = subprocess.run(
            [*layers.OWN_PIDS, "--uts", "--ipc", "sh", "-c", f'{bind} && exec "$@"', "sh", *inner],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        (root.path / AUTHORITIES[1:]).unlink(missing_ok=True)
        if ran.returncode:
            raise RuntimeError(f"RUN {command} ended with {ran.returncode}:\n{ran.stdout[-4000:]}{ran.stderr[-4000:]}")

    def _context(self) -> Path:
        """The folder as an engine is given it: without what .dockerignore leaves out."""
        folder = self.scratch / "context"
        if not folder.exists():
            listed = subprocess.run(
                ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                cwd=self.context,
                check=True,
                capture_output=True,
                text=True,
            )
            paths = dockerfile.kept(listed.stdout.splitlines(), (self.context / ".dockerignore").read_text())
            for path in paths:
                layers.copy_into(folder, [self.context / path], str(Path("/", path)), "/")
        return folder

    def _view(self, name: str, image: Image) -> Path:
        """Return another target's files as one folder."""
        root = layers.Root(self.scratch / "viewed" / name, image.layers, self.scratch / "views" / name)
        if not root.path.is_mount():
            root.mount()
        return root.path


def debootstrap(release: str, folder: Path) -> None:
    """Debian's smallest system, into a new folder."""
    beside = folder.with_name(f"{folder.name}.begun")
    ran = subprocess.run(
        ["debootstrap", "--variant=minbase", release, str(beside)], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise RuntimeError(f"debootstrap {release} ended with {ran.returncode}:\n{ran.stdout[-3000:]}{ran.stderr}")
    beside.rename(folder)


def _bytes_of(folder: Path) -> int:
    return sum(entry.lstat().st_size for entry in folder.rglob("*") if entry.is_file() and not entry.is_symlink())
