"""The jars of an unmodified Apache RocketMQ, and programs compiled against them, in a cache that outlives the tests.

Maven resolves a set of jars once into $ROCKETMQ_PEER_CACHE, else $XDG_CACHE_HOME/rocketmq-peer, else
~/.cache/rocketmq-peer.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FETCH_SECONDS = 600.0
HERE = Path(__file__).parent
SUITE = HERE / "suite"


def _cache() -> Path:
    base = os.environ.get("ROCKETMQ_PEER_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocketmq-peer"


class Jars(NamedTuple):
    """What a pom names in one version; `needed` are files by which an older, smaller set is known."""

    name: str
    version: str
    pom: Path
    needed: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Where they are, or come."""
        return _cache() / self.name

    def missing(self) -> str | None:
        """Why they cannot be used here; None when they can. Fetches them the first time."""
        for program in ("java", "javac"):
            if not shutil.which(program):
                return f"no {program} on the PATH"
        if all((self.folder / name).exists() for name in (".complete", *self.needed)):
            return None
        if not shutil.which("mvn"):
            return f"RocketMQ {self.version} is not in {_cache()}, and there is no mvn to fetch it"
        return self._fetch()

    def _fetch(self) -> str | None:
        self.folder.mkdir(parents=True, exist_ok=True)
        arriving = Path(tempfile.mkdtemp(prefix=f"{self.name}.", dir=self.folder.parent))
        command = ["mvn", "-q", "-B", "-f", str(self.pom), f"-Drocketmq.version={self.version}"]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={arriving}", "-DincludeScope=runtime"]
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=FETCH_SECONDS)
            if done.returncode:
                return f"mvn could not resolve RocketMQ {self.version}: {done.stdout[-300:]}"
            for jar in arriving.iterdir():
                jar.rename(self.folder / jar.name)  # the same bytes as another test's that was faster
            (self.folder / ".complete").touch()
        except subprocess.TimeoutExpired:
            return f"mvn did not resolve RocketMQ {self.version} within ten minutes"
        finally:
            shutil.rmtree(arriving, ignore_errors=True)
        return None

    def class_path(self, sources: Sequence[Path]) -> str:
        """These programs, and the jars behind them."""
        return f"{self.compiled(sources)}:{self.folder}/*"

    @property
    def files(self) -> list[Path]:
        """The jars."""
        return sorted(self.folder.glob("*.jar"))

    @property
    def archive(self) -> Path:
        """Where an archive of classes is, if `archives` made one for these jars and this Java."""
        states = [(str(path), path.stat()) for path in (Path(shutil.which("java") or "/").resolve(), *self.files)]
        key = zlib.crc32(repr([(name, state.st_size, state.st_mtime_ns) for name, state in states]).encode())
        return _cache() / f"{self.name}-{key:08x}.jsa"

    def compiled(self, sources: Sequence[Path]) -> Path:
        """The folder of these programs, compiled against the jars and kept by their content."""
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
        compiled = _cache() / f"classes-{self.name}-{digest}"
        if not compiled.exists():
            arriving = Path(tempfile.mkdtemp(prefix=f"{compiled.name}.", dir=_cache()))
            command = ["javac", "-nowarn", "-proc:none", "-encoding", "UTF-8", "-d", str(arriving)]
            subprocess.run([*command, "-cp", f"{self.folder}/*", *map(str, sources)], check=True)
            with contextlib.suppress(OSError):
                arriving.rename(compiled)  # where another test was faster, its copy serves
            shutil.rmtree(arriving, ignore_errors=True)
        return compiled


def of_broker(version: str) -> Jars:
    """Name server, broker, client and mqadmin."""
    modules = tuple(f"rocketmq-{module}-{version}.jar" for module in ("namesrv", "broker", "client"))
    return Jars(f"lib-{version}", version, HERE / "pom.xml", modules)


def of_suite(version: str) -> Jars:
    """RocketMQ's integration tests, as they are published."""
    tests = f"rocketmq-test-{version}-tests.jar", f"rocketmq-test-{version}.jar"
    return Jars(f"suite-{version}", version, SUITE / "pom.xml", tests)
