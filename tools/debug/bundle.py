"""`slipstream debug bundle`, at work: each part is tried by itself, and what could not be had is said in the bundle."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click
import psutil

from ipc.module_names import named
from store.errors import NotAStore
from store.files import pointer
from store.names import CHECKPOINT, CONFIG, DIVERGED, EPOCHS, PEERS
from tools.common.exit_codes import ExitCode
from tools.common.output_form import json_text
from tools.debug import facts, masked
from tools.debug.commands import refuse_existing

PARTS_BYTES_MAX, PART_BYTES_MAX, TABLE_FILES_MAX = 64 << 20, 4 << 20, 64
LOG_BYTES_MAX = 1 << 20
COMMAND_SHARE = 0.25  # of all the time
COMMANDS = (
    ("status",), ("counters",), ("stats",), ("doctor",), ("groups",), ("clients",), ("ha", "status"), ("ha", "explain"),
)  # fmt: skip
OWN_FILES = (EPOCHS, DIVERGED, PEERS)
NOTE = """\
What `slipstream debug bundle` collected. Not in it: bodies, keys and properties of messages, values of secret settings.
In it, by name: topics, groups, hosts, addresses, users and paths. Look at it before you send it.
"""


class Bundle:
    """The parts so far, in memory: they are bounded."""

    def __init__(self, seconds: float) -> None:
        self.parts: dict[str, bytes] = {}
        self.unread: list[str] = []
        self.secrets: set[bytes] = set()
        self.command_seconds = seconds * COMMAND_SHARE
        self._until, self._bytes = time.monotonic() + seconds, 0

    @property
    def seconds_left(self) -> float:
        """Return the time until the rest is left out."""
        return self._until - time.monotonic()

    def attempt(self, name: str, make: Callable[[], bytes | str]) -> None:
        """Add a part, unless time or room is over."""
        if self.seconds_left <= 0 or self._bytes >= PARTS_BYTES_MAX:
            self.unread.append(f"{name}: left out, {'time' if self.seconds_left <= 0 else 'room'} is over")
            return
        try:
            made = make()
        except OSError as error:
            self.unread.append(f"{name}: {error.filename or ''}: {error.strerror or error}".replace(": : ", ": "))
            return
        except Exception as error:  # whatever is wrong with what is looked at must not keep the rest
            self.unread.append(f"{name}: {type(error).__name__}: {error}")
            return
        content = made.encode("utf-8", "backslashreplace") if isinstance(made, str) else made
        content = content[:PART_BYTES_MAX]
        self.parts[name] = content
        self._bytes += len(content)

    def sealed(self) -> dict[str, bytes]:
        """Return all parts with a list of what could not be read, secrets masked wherever they stand."""
        said = {"schema": 1, "made": _now(), "uid": os.getuid(), "could_not_be_read": self.unread}
        parts = {"README": NOTE.encode(), **self.parts, "bundle.json": json.dumps(said, indent=1).encode()}
        return {name: masked.without(content, self.secrets) for name, content in parts.items()}


def bundle(store: Path, output: Path | None, config: Path | None, seconds: int, as_json: bool) -> int:
    """Collect, write, and print what was collected. Raises OSError."""
    target = output or Path(f"slipstream-debug-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz")
    refuse_existing(target)
    made = Bundle(seconds)
    _collect(made, store.resolve(), config)
    parts = made.sealed()
    _write(target, parts)
    unread = [masked.without(line.encode(), made.secrets).decode(errors="replace") for line in made.unread]
    if as_json:
        sizes = [{"name": name, "bytes": len(content)} for name, content in parts.items()]
        click.echo(json_text("debug.bundle", {"file": str(target), "parts": sizes, "unread": unread}))
    else:
        _print_parts(target, parts, unread)
    return 0 if made.parts else ExitCode.STORE


def _print_parts(target: Path, parts: dict[str, bytes], unread: list[str]) -> None:
    for name, content in parts.items():
        click.echo(f"{len(content):>9} {name}")
    for line in unread:
        click.echo(f"could not be read: {line}")
    click.echo(f"wrote {target}, {target.stat().st_size} bytes, readable only by you; without bodies of messages.")
    click.echo("It contains names of topics, groups, hosts and paths: look at it before you send it.")


def _collect(made: Bundle, store: Path, config: Path | None) -> None:
    pid = _broker_of(made, store)
    file = config or (_file_of(pid) if pid else None)
    log_file = _take_settings(made, file) if file else None
    if file is None:
        why = f"process {pid} does not name it" if pid else "no running broker names it"
        made.unread.append(f"broker.properties: {why}; give -c FILE")
    made.attempt("versions.txt", facts.versions)
    made.attempt("machine.txt", lambda: facts.machine(store))
    for words in COMMANDS:
        made.attempt(f"commands/{'-'.join(words)}.json", partial(_said, made, words, store))
    made.attempt("files.txt", lambda: _listing(made, store))
    _take_tables(made, store)
    if pid:
        for role, text in facts.processes(pid):
            made.attempt(f"processes/{role}.txt", partial(str, text))
    for name, path in _logs(pid, log_file):
        made.attempt(f"log/{name}", partial(facts.read_part, path, LOG_BYTES_MAX, tail=True))


def _broker_of(made: Bundle, store: Path) -> int:
    """The process of the broker there; 0 without one."""
    try:
        broker = pointer.read(store)
    except (NotAStore, OSError) as error:
        made.unread.append(f"the broker: {error}")
        return 0
    return broker.pid if broker is not None and broker.is_alive else 0


def _file_of(pid: int) -> Path | None:
    """The file that a broker was started with."""
    try:
        process = psutil.Process(pid)
        words = process.cmdline()
        for flag, value in zip(words, words[1:], strict=False):
            if flag in ("-c", "--config"):
                is_whole = os.path.isabs(value)  # where another user's process is, the kernel does not say
                return Path(value) if is_whole else Path(process.cwd(), value)
    except psutil.Error:
        pass
    return None


def _take_settings(made: Bundle, file: Path) -> Path | None:
    """A broker's file and that of its certificates, masked; where it says that the log goes."""
    log_file: list[Path] = []

    def take(path: Path) -> bytes:
        content = facts.read_part(path.resolve())
        made.secrets |= masked.secrets_of(content)
        for entry in masked.entries_of(content):
            if entry.key == "logFile":
                log_file.append(Path(entry.value.strip()).expanduser())
            elif entry.key in ("tls.config.file", "haTlsConfigFile") and path == file:
                named_file = Path(entry.value.strip()).expanduser()
                made.attempt(f"{entry.key}.properties", partial(take, named_file))
        return masked.masked(content)

    made.attempt("broker.properties", lambda: take(file))
    return log_file[0] if log_file else None


def _said(made: Bundle, words: tuple[str, ...], store: Path) -> bytes:
    """Return what a Slipstream command prints, run in a process of its own: a failure ends there."""
    command = [sys.executable, "-m", named("tools.cli"), *words, str(store), "--json"]
    seconds = max(1.0, min(made.command_seconds, made.seconds_left))
    try:
        ran = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return json.dumps({"error": f"no answer within {seconds:.0f} s"}).encode()
    if ran.stdout:
        return ran.stdout
    return json.dumps({"exit": ran.returncode, "error": ran.stderr.decode(errors="replace")[-4000:]}).encode()


def _listing(made: Bundle, store: Path) -> str:
    text, unread = facts.listing(store)
    made.unread += unread
    return text


def _take_tables(made: Bundle, store: Path) -> None:
    """Topics, groups, offsets; the checkpoint, in which there are times alone; our own notes."""
    try:
        names = sorted(name for name in os.listdir(store / CONFIG) if name.endswith(".json"))
        tables = [store / CONFIG / name for name in names[:TABLE_FILES_MAX]]
    except OSError as error:
        made.unread.append(f"{CONFIG}: {error.strerror}")
        tables = []
    for path in tables:
        made.attempt(f"{CONFIG}/{path.name}", partial(facts.read_part, path, PART_BYTES_MAX))
    made.attempt(f"{CHECKPOINT}.txt", lambda: _checkpoint(store / CHECKPOINT))
    for name in OWN_FILES:
        if os.path.lexists(store / name):
            made.attempt(name, partial(facts.read_part, store / name))


def _checkpoint(path: Path) -> str:
    content = facts.read_part(path, 64)
    return "\n".join(str(int.from_bytes(content[at : at + 8])) for at in range(0, len(content), 8))


def _logs(pid: int, log_file: Path | None) -> list[tuple[str, Path]]:
    """The file that is written, the one before it, and where standard error goes, if that is a file."""
    logs = [(name, Path(f"{log_file}{end}")) for name, end in (("log", ""), ("log.1", ".1")) if log_file]
    try:
        error = Path(os.readlink(f"/proc/{pid}/fd/2")) if pid else None
    except OSError:
        error = None
    if error is not None and os.path.isfile(error):
        logs.append(("standard-error", error))
    return [(name, path) for name, path in logs if name != "log.1" or os.path.exists(path)]


def _write(target: Path, parts: dict[str, bytes]) -> None:
    """Write the archive, all of it or nothing, readable by its owner alone. Raises OSError."""
    part = target.with_name(f".{target.name}.{os.getpid()}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, content in parts.items():
                about = tarfile.TarInfo(f"{target.name.removesuffix('.tar.gz')}/{name}")
                about.size, about.mtime, about.mode = len(content), int(time.time()), 0o600
                archive.addfile(about, io.BytesIO(content))
        os.link(part, target)  # never over another file
    except OSError as error:
        if error.filename is None:
            error.filename = str(target)
        raise
    finally:
        part.unlink(missing_ok=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
