"""Where compiled kernels are kept: a folder for each state of a module's sources, where this user may write.

Code is loaded from there and run, so a folder that others may write is never taken.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from warnings import warn

from ipc.compiled.sources import STATE_DIGITS, state_of
from ipc.module_names import IMPORTED_FROM, SOURCES

OURS = "slipstream"
FOLDER = "kernels-"
STATES_KEPT = 4  # of each module: other checkouts and branches come back
RECORD = "slipstream_log-*.dist-info/RECORD"  # of an installed wheel: path,hash,size
WRITABLE_BY_OTHERS = 0o022
BESIDE_SOURCES = SOURCES / "ipc" / "__pycache__"


@cache
def folder_of(file: Path, given: str = "") -> Path | None:
    """The folder for the kernels of this source file, made if it is not there; None where none may be written.

    `given` is what the user asked for; the places after it are those of `places`.
    """
    if not file.is_file():  # in an archive
        return None
    base = base_folder(given)
    if base is None:
        return None
    folder = base / f"{FOLDER}{_module_of(file)}-{state_of(file)}"
    try:
        if not folder.is_dir():
            _make(folder)
        os.utime(folder)
    except OSError:  # a disk that is full or read-only: kernels work without it
        return None
    return folder


@cache
def base_folder(given: str = "") -> Path | None:
    """Return the first place in which this user may make files; None without one. `given` is tried first."""
    wanted = [Path(given)] if given else []
    for place in [*wanted, *places()]:
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=place).close()
            status = place.stat()
        except OSError:
            continue
        # who may write beside the sources may write the sources; what the user names is the user's affair
        is_given = place in wanted
        if is_given or place == BESIDE_SOURCES or _is_private(status):
            if given and not is_given:
                warn(f"NUMBA_CACHE_DIR={given} cannot be written; compiled code is kept in {place}", stacklevel=2)
            return place
    warn("compiled code can be kept nowhere: each process compiles for minutes; set NUMBA_CACHE_DIR", stacklevel=2)
    return None


def places() -> Iterator[Path]:
    """Yield where kernels may be, best first.

    Beside the sources, in what systemd gives a service, below the user's caches.

    The last is for a user who has no home: a folder of the user's own beside other temporary files.
    """
    yield BESIDE_SOURCES
    if service := os.environ.get("CACHE_DIRECTORY"):
        yield Path(service.partition(":")[0])
    if caches := os.environ.get("XDG_CACHE_HOME"):
        yield Path(caches) / OURS
    home = os.path.expanduser("~")
    if os.path.isabs(home):
        yield Path(home) / ".cache" / OURS
    yield Path(tempfile.gettempdir()) / f"{OURS}-{os.geteuid()}"


def note_as_installed() -> int:
    """Add the kernels beside installed sources to the package's own list of files, so that `pip uninstall` takes them.

    Returns how many were added; none where the sources are a checkout, or may only be read.
    """
    try:
        record = next(IMPORTED_FROM.glob(RECORD))
        known = record.read_text(encoding="utf-8")
    except (StopIteration, OSError):
        return 0
    kernels = (path.relative_to(IMPORTED_FROM) for path in BESIDE_SOURCES.glob(f"{FOLDER}*/**/*") if path.is_file())
    rows = [f"{path},,\n" for path in sorted(kernels) if f"{path}," not in known]
    if not rows or not os.access(record, os.W_OK):
        return 0
    beside = record.with_name(f"{record.name}.{os.getpid()}")
    beside.write_text(known + "".join(rows), encoding="utf-8")
    shutil.copymode(record, beside)
    beside.rename(record)
    return len(rows)


def remove_kernels(given: str = "") -> list[Path]:
    """Remove all kernels of this user's places, of every state; which folders went."""
    gone = []
    for place in (Path(given),) if given else places():
        for folder in sorted(place.glob(f"{FOLDER}*")):
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                gone.append(folder)
        if place != BESIDE_SOURCES and place.name.startswith(OURS) and place.is_dir() and not any(place.iterdir()):
            place.rmdir()
    return gone


def _module_of(file: Path) -> str:
    return ".".join(file.relative_to(SOURCES).with_suffix("").parts) if file.is_relative_to(SOURCES) else file.stem


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & WRITABLE_BY_OTHERS


def _make(folder: Path) -> None:
    """A new state's folder: a copy of the one beside the sources where somebody filled that; old states go."""
    filled = BESIDE_SOURCES / folder.name
    with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent) as scratch:
        begun = Path(scratch) / folder.name
        if filled.is_dir() and filled != folder:
            shutil.copytree(filled, begun)
        else:
            begun.mkdir()
        begun.chmod(0o755)
        try:
            begun.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first
                raise
    same_module = folder.name[:-STATE_DIGITS]
    states = [path for path in folder.parent.glob(f"{same_module}*") if len(path.name) == len(folder.name)]
    for old in sorted(states, key=_last_use_ns)[:-STATES_KEPT]:
        shutil.rmtree(old, ignore_errors=True)  # another process may be removing it, too


def _last_use_ns(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
