"""`slipstream debug bundle`: what a maintainer needs is in it, no body and no secret is, whatever the store's state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.producer import Producer
from tests.harness.children import exit_code_of
from tests.harness.conditions import await_that
from tests.harness.small_disk import SmallDisk
from tools.common import local_broker
from tools.common.local_broker import LocalBroker
from tools.debug.bundle import bundle
from tools.debug.masked import masked, secrets_of

SECONDS = 3600
BODY, KEY, SECRET = b"a body that nobody hands on", "a-key-of-a-message", "correct-horse-battery"


def collect(*arguments: object, inside: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*inside, sys.executable, "-m", "tools.cli", "debug", "bundle", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def parts_of(path: Path) -> dict[str, bytes]:
    """The files in a bundle, by their names in its folder."""
    parts = {}
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None and member.mode == 0o600
            parts[member.name.partition("/")[2]] = file.read()
    return parts


@pytest.mark.broker
def test_a_running_broker_is_all_there_without_bodies_and_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalBroker, "start", staticmethod(local_broker.start))  # its command line names its file
    secret, tls, log = tmp_path / "secret", tmp_path / "tls.properties", tmp_path / "logs" / "b.log"
    secret.write_text(f"{SECRET}\n")
    tls.write_text(f"tls.client.keyPassword={SECRET}-of-a-key\n")
    log.parent.mkdir()
    log.write_text(f"a line that says {SECRET}\n")
    keys = {"haSecretFile": secret, "tls.config.file": tls, "logFile": log, "mappedFileSizeCommitLog": 1 << 20}
    with LocalBroker(tmp_path / "b", **keys) as broker:
        with (tmp_path / "b" / "broker.properties").open("a") as file:
            file.write(f"# {SECRET}\n")
        with Producer(broker.store, timeout=60) as producer:
            producer.send("orders", BODY, keys=[KEY])
        topics = broker.store / "config" / "topics.json"
        await_that(lambda: topics.exists() and "orders" in topics.read_text(), "the file names the topic")
        ran = collect(broker.store, "-o", tmp_path / "x.tar.gz", "--seconds", 3600)
        assert ran.returncode == 0, ran.stderr
    parts = parts_of(tmp_path / "x.tar.gz")
    assert not [name for name, part in parts.items() if BODY in part or KEY.encode() in part or SECRET.encode() in part]
    assert all(f" {name}\n" in ran.stdout for name in parts), "it says what it holds"
    assert json.loads(parts["commands/status.json"])["pid"] == broker.process.pid
    for command in ("counters", "stats", "doctor", "groups", "clients", "ha-status"):
        assert "error" not in json.loads(parts[f"commands/{command}.json"]), command
    roles = {name.partition("/")[2].rpartition("-")[0] for name in parts if name.startswith("processes/")}
    assert {"supervisor", "writer", "flusher", "front.0"} <= roles
    assert b"Max open files" in next(part for name, part in parts.items() if name.startswith("processes/writer"))
    assert b"haSecretFile=***\n" in parts["broker.properties"] and b"logFile=" in parts["broker.properties"]
    assert parts["tls.config.file.properties"] == b"tls.client.keyPassword=***\n"
    assert parts["log/log"].startswith(b"a line that says ***\n") and b"recovered" in parts["log/log"]
    assert b"commitlog/00000000000000000000" in parts["files.txt"]
    assert b"orders" in parts["config/topics.json"] and b"numba " in parts["versions.txt"]
    assert (tmp_path / "x.tar.gz").stat().st_mode & 0o777 == 0o600
    again = collect(broker.store, "-o", tmp_path / "x.tar.gz")
    assert (again.returncode, again.stderr.count("\n")) == (4, 1) and "is not overwritten" in again.stderr


def damaged_store(folder: Path) -> Path:
    store = folder / "store"
    for name in ("config", "commitlog"):
        (store / name).mkdir(parents=True)
    (store / "config" / "topics.json").write_bytes(b"\xff{")
    os.mkfifo(store / "config" / "consumerOffset.json")
    (store / "checkpoint").symlink_to("/etc/passwd")
    (store / "slipstream.run").write_bytes(b"{")
    (store / "commitlog" / "00000000000000000000").write_bytes(BODY)
    (store / "commitlog" / "x\ny").write_bytes(b"")
    return store


def test_a_damaged_store_without_a_broker(tmp_path: Path) -> None:
    store, file = damaged_store(tmp_path), tmp_path / "broker.properties"
    file.write_text(f"brokerName=x\nsecretKey={SECRET}\n")
    ran = collect(store, "-c", file, "-o", tmp_path / "x.tar.gz", "--seconds", 3600)
    assert ran.returncode == 0, ran.stderr
    parts = parts_of(tmp_path / "x.tar.gz")
    assert parts["broker.properties"] == b"brokerName=x\nsecretKey=***\n"
    assert not [name for name, part in parts.items() if BODY in part or SECRET.encode() in part or b"root:" in part]
    assert b"x\\ny" in parts["files.txt"] and parts["config/topics.json"] == b"\xff{"
    unread = json.loads(parts["bundle.json"])["could_not_be_read"]
    assert [line.partition(":")[0] for line in unread if "store" in line][-2:] == [
        "config/consumerOffset.json",
        "checkpoint.txt",
    ]
    assert all(f"could not be read: {line}" in ran.stdout for line in unread)


def test_late_parts_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a clock that goes on by a second at each look: how long parts take is the machine's."""
    monkeypatch.setattr("tools.debug.bundle.time", SimpleNamespace(monotonic=count().__next__, time=time.time))
    assert bundle(damaged_store(tmp_path), tmp_path / "x.tar.gz", None, 4, as_json=False) == 0
    assert "left out, time is over" in capsys.readouterr().out
    assert {"versions.txt", "bundle.json"} <= parts_of(tmp_path / "x.tar.gz").keys()


def test_what_is_no_directory_is_one_line(tmp_path: Path) -> None:
    ran = collect(tmp_path / "nowhere")
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1) and "not a directory" in ran.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="root alone becomes somebody else")
def test_another_user_sees_what_could_not_be_read(tmp_path: Path) -> None:
    store, out = damaged_store(tmp_path), tmp_path / "out"
    out.mkdir()
    out.chmod(0o777)
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        if folder.stat().st_uid == os.getuid() and "pytest" in str(folder):
            folder.chmod(0o755)
    (store / "config").chmod(0o700)
    (store / "commitlog").chmod(0o700)
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    ran = collect(store, "-o", out / "x.tar.gz", "--seconds", 3600, inside=nobody)
    assert ran.returncode == 0, ran.stderr
    assert f"{store}/commitlog: Permission denied" in ran.stdout
    assert (out / "x.tar.gz").stat().st_uid == 65534


def test_a_full_disk_is_named_and_nothing_is_left_there(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", 1 << 20, "tmpfs") as disk:
        (disk.path / "filler").write_bytes(b"x" * (1 << 20))
        ran = collect(damaged_store(tmp_path), "-o", disk.path / "x.tar.gz")
        assert (ran.returncode, ran.stderr.count("\n")) == (4, 1)
        assert f"{disk.path}/x.tar.gz: No space left on device; free some disk space" in ran.stderr
        assert [path.name for path in disk.path.iterdir()] == ["filler"]


@pytest.mark.parametrize(
    "line",
    [
        "secretKey=ab cd", "accessKey = ab cd", "tls.server.keyPassword:ab cd", "haSecretFile=ab\\\n cd",
        "aclToken=ab cd",
        "db.passwd=ab cd", "tls.server.keyPath=ab cd", "PRIVATEKEY=ab cd", "# ab cd", "credentials=\\u0061b cd",
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_masked(line: str) -> None:
    content = f"brokerName=x\n{line}\nhaSecretRequired=true\n".encode()
    shown = masked(content)
    assert b"ab" not in shown and b"cd" not in shown
    assert shown.startswith(b"brokerName=x\n") and shown.endswith(b"haSecretRequired=true\n")
    assert secrets_of(content) == (set() if line.startswith("#") else {b"abcd" if "\\\n" in line else b"ab cd"})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("is_hidden", [True, False], ids=["no rights", "an analyst's"])
def test_another_user_gets_what_he_may_read_and_the_names_of_the_rest(is_hidden: bool, tmp_path: Path) -> None:
    import difflib  # noqa: F401  the other user may read none of the interpreter's files
    import gzip  # noqa: F401

    store = tmp_path / "store"
    for name in ("commitlog", "config"):
        (store / name).mkdir(parents=True)
    (store / "config" / "topics.json").write_text("{}")
    (store / "config").chmod(0o755)
    store.chmod(0o700 if is_hidden else 0o755)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if folder != Path("/tmp"):
            folder.chmod(0o755)
    out = tmp_path / "out"
    out.mkdir(mode=0o777)
    out.chmod(0o777)
    child = os.fork()
    if not child:
        code = 99
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            code = bundle(store, out / "x.tar.gz", None, 60, False)
        finally:
            os._exit(code)
    assert exit_code_of(child) == 0
    parts = parts_of(out / "x.tar.gz")
    unread = json.loads(parts["bundle.json"])["could_not_be_read"]
    assert "machine.txt" in parts and ("config/topics.json" in parts) is not is_hidden
    assert any("config" in line and "Permission denied" in line for line in unread) is is_hidden, unread
