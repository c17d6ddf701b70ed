"""What is wrong with a command line is told before anything heavy is loaded, also where there is a store.

What is loaded is looked at, no time is taken: numpy alone costs more than all of such an error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipc.process import start_time
from store.files import pointer
from tools import cli

HEAVY = (
    "numpy numba pyarrow pyspark pandas deltalake pyiceberg fastavro lz4 rich psutil uvloop asyncio starlette uvicorn"
    " multiprocessing concurrent.futures ctypes secrets"
)
EACH = """
import json, sys
from tools.cli import run_command

heavy = set(sys.argv[1].split())
for line in json.load(sys.stdin):
    code = run_command(line)
    print(json.dumps([code, sorted(heavy & set(sys.modules))]), flush=True)
"""
UNSET = ("NAMESRV_ADDR", "SLIPSTREAM_ACCESS_KEY", "SLIPSTREAM_SECRET_KEY")
GROUP = ("-g", "g", "-t", "t", "-b", "127.0.0.1:1")
LAKE = ("lake", "idle", "--once", "--to")
CASES: list[tuple[tuple[str, ...], int, str]] = [  # what is typed, its exit code, what is told
    (("log", "cat", "idle", "--since", "-1h", "--until", "-2h"), 2, "--since is not before --until"),
    (("log", "cat", "file", "--follow"), 2, "is a file, and no broker appends to it"),
    (("log", "cat", "idle", "--follow"), 3, "NO_BROKER: idle"),
    (("log", "find", "idle"), 2, "give one of --key, --id"),
    (("log", "find", "idle", "--queue", "orders:0"), 2, "give one of --key, --id"),
    (("log", "find", "idle", "--queue", "orders:0", "--time", "-1h"), 2, "the queue does not exist"),
    (("log", "export", "idle"), 2, "give one of --parquet FILE"),
    (("log", "export", "idle", "--parquet", "a", "--json", "b"), 2, "give one of --parquet FILE"),
    (("log", "export", "idle", "--json", "nowhere/a"), 2, "nowhere is not a directory"),
    (("log", "export", "idle", "--parquet", "a", "--columns", "nosuch"), 2, "no column 'nosuch'"),
    (("log", "verify", "idle", "--delay-levels", "x"), 2, "not a list of delay levels"),
    (("log", "sidecar", "idle", "--check", "--drop"), 2, "--check and --drop cannot be combined"),
    (("log", "sidecar", "nowhere"), 2, "NOT_A_STORE: nowhere"),
    (("log", "plan", "nowhere"), 2, "NOT_A_STORE: nowhere"),
    (("log", "plan", "idle", "--option", "path=x"), 2, "use STORE, --topic or --where"),
    (("log", "plan", "idle", "--option", "nosuch=1"), 2, "unknown option 'nosuch'"),
    (("log", "plan", "idle", "--option", "decode=nosuch"), 2, "one of raw, json, avro, protobuf"),
    (("log", "plan", "idle", "--option", "startingOffsets=x"), 2, "give earliest, or JSON"),
    (("log", "plan", "idle", "--where", "x"), 2, "give JSON as"),
    (("log", "repair", "idle"), 2, "give one of --from"),
    (("log", "repair", "idle", "--cut", "-1"), 2, "-1 is not in the range"),
    (("log", "repair", "idle", "--from", "idle"), 2, "--from names the store itself"),
    (("log", "repair", "idle", "--from", "nowhere"), 2, "NOT_A_STORE: nowhere"),
    (("log", "repair", "served", "--from", "idle"), 4, "STORE_LOCKED: served"),
    (("log", "rebuild", "queue", "idle", "--queue", "1"), 2, "--queue needs --topic"),
    (("log", "rebuild", "queue", "served"), 4, "STORE_LOCKED: served"),
    (("log", "rebuild", "index", "idle", "--slots", "4"), 2, "--slots and --entries must be given together"),
    (("log", "rebuild", "index", "served"), 4, "STORE_LOCKED: served"),
    (("snapshot", "a"), 2, "give only STORE with --list"),
    (("snapshot", "--list", "--drop", "idle"), 2, "--list and --drop cannot be combined"),
    (("snapshot", "a", "nowhere"), 2, "NOT_A_STORE: nowhere"),
    (("snapshot", "a/b", "idle"), 2, "not a name for a snapshot"),
    (("snapshot", "a", "idle", "--keep", "40d"), 2, "it would be kept for 960 h"),
    (("snapshot", "--list", "nowhere"), 2, "NOT_A_STORE: nowhere"),
    (("snapshot", "--drop", "a", "idle"), 2, "no snapshot 'a'"),
    (("replica", "check", "idle", "--with", "nowhere"), 2, "neither a directory nor HOST:PORT"),
    (("replica", "check", "idle", "--with", "empty"), 2, "NOT_A_STORE: empty"),
    (("replica", "rewind", "idle"), 2, "give either --to OFFSET or --with OTHER"),
    (("replica", "rewind", "idle", "--with", "nowhere"), 2, "neither a directory nor HOST:PORT"),
    (("replica", "rewind", "served", "--to", "0"), 4, "STORE_LOCKED: served"),
    (("replica", "forget", "served"), 4, "STORE_LOCKED: served"),
    (("promote", "idle", "--master", "x"), 2, "'x' is not HOST:PORT"),
    (("demote", "nowhere"), 2, "NOT_A_STORE: nowhere"),
    (("debug", "bundle", "nowhere"), 2, "NOT_A_STORE: nowhere"),
    (("debug", "bundle", "idle", "-o", "file"), 4, "it already exists"),
    (("send", "-t", "t"), 2, "no broker given"),
    (("send", "-t", "t", "-b", "127.0.0.1:1", "nowhere"), 4, "nowhere: No such file"),
    (("send", "-t", "t", "-b", "127.0.0.1:1", "--property", "KEYS=a"), 2, "set by RocketMQ itself"),
    (("consume", "-g", "g", "-t", "t"), 2, "no broker given"),
    (("consume", "-g", "a b", "-t", "t", "-b", "127.0.0.1:1"), 2, "not a valid group name"),
    (("send", "-t", "t", "-b", "127.0.0.1:1", "--access-key", "k"), 2, "access key 'k' is given without its secret"),
    (("consume", *GROUP, "--secret-key-file", "file"), 2, "a secret key is given without an access key"),
    (("consume", *GROUP, "--secret-key-file", "nowhere"), 4, "nowhere: No such file"),
    (("consume", *GROUP, "--secret-key-file", "blank"), 2, "blank: the secret must be one line of UTF-8 text"),
    (("web", "nowhere"), 2, "NOT_A_STORE: nowhere"),
    (("web", "idle", "--host", "0.0.0.0"), 2, "can be reached from other hosts"),
    (("web", "idle", "--name", "a"), 2, "--name needs --expose"),
    (("web", "idle", "--tls-config", "nowhere"), 2, "nowhere: cannot be read"),
    (("flight",), 2, "give either STORE or -c"),
    (("flight", "nowhere"), 2, "NOT_A_STORE: nowhere"),
    (("flight", "-c", "nowhere"), 2, "nowhere: cannot be read"),
    (("flight", "idle", "--host", "0.0.0.0"), 2, "can be reached from other hosts"),
    (("flight", "idle", "--token-file", "nowhere"), 4, "nowhere: No such file"),
    (("flight", "idle", "--token-file", "file"), 2, "a token has 16 to 4096"),
    (("flight", "idle", "--token-file", "file", "--no-token"), 2, "give one of them"),
    (("flight", "idle", "--no-token", "--write-token-file", "file"), 2, "also give --writable"),
    (("flight", "idle", "--no-token", "--allow", "zzz"), 2, "--allow zzz"),
    (("flight", "idle", "--tls-config", "nowhere"), 2, "nowhere: cannot be read"),
    ((*LAKE, "iceberg", "--table", "a.b"), 2, "--catalog is missing"),
    ((*LAKE, "iceberg", "--table", "a.b", "--catalog", "nowhere"), 2, "nowhere: cannot be read"),
    ((*LAKE, "iceberg", "--table", "ab", "--catalog", "sqlite:////x.db"), 2, "an Iceberg table is NAMESPACE.NAME"),
    ((*LAKE, "iceberg", "--table", "a.b", "--storage", "file"), 2, "--storage belongs to --to delta"),
    ((*LAKE, "delta", "--table", "t", "--catalog", "x"), 2, "--catalog and --warehouse belong"),
    ((*LAKE, "delta", "--table", "t", "--storage", "nowhere"), 2, "nowhere: cannot be read"),
    ((*LAKE, "delta", "--table", "t", "--option", "x"), 2, "NAME=VALUE"),
    ((*LAKE, "delta", "--table", "t", "--option", "x=y"), 2, "unknown option 'x'"),
    ((*LAKE, "delta", "--table", "t", "--option", "maxOffsetsPerTrigger=1"), 2, "one of Spark's streams"),
    ((*LAKE, "delta", "--table", "t", "--schema", "file"), 2, "needs --decode"),
    ((*LAKE, "delta", "--table", "t", "--decode", "avro"), 2, "needs avroSchema"),
    ((*LAKE, "delta", "--table", "t", "--decode", "protobuf", "--message", "a.B"), 2, "needs protobufDescriptors"),
    ((*LAKE, "delta", "--table", "t", "--decode", "avro", "--schema", "nowhere"), 4, "nowhere: No such file"),
    (("lake", "nowhere", "--to", "delta", "--table", "t"), 2, "NOT_A_STORE: nowhere"),
    (("lake", "idle", "nowhere", "--to", "delta", "--table", "t"), 2, "NOT_A_STORE: nowhere"),
]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A store without a broker, one that a broker seems to run on, a directory and a file that are none."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("a file\n")
    (tmp_path / "blank").write_text("\n")
    for name in ("idle", "served"):
        (tmp_path / name / "commitlog").mkdir(parents=True)
    pid = os.getpid()
    fields = {"pid": pid, "start_time": start_time(pid), "region_directory": str(tmp_path / "regions"), "settings": {}}
    held = pointer.write(tmp_path / "served", tmp_path / "served" / "commitlog", fields)
    yield tmp_path
    os.close(held)


def test_wrong_arguments_are_reported_before_anything_heavy_is_loaded(place: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in UNSET}
    ran = subprocess.run(
        [sys.executable, "-c", EACH, HEAVY],
        input=json.dumps([line for line, _code, _told in CASES]),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=place,
        env={**environment, "PYTHONPATH": str(Path(cli.__file__).parent.parent)},
    )
    told, seen = ran.stderr.splitlines(), [json.loads(line) for line in ran.stdout.splitlines()]
    for (line, code, words), said, (ended, loaded) in zip(CASES, told, seen, strict=False):
        assert (ended, loaded) == (code, []), (line, said)
        assert said.startswith("slipstream: ") and words in said, (line, said)
    assert len(told) == len(seen) == len(CASES), ran.stderr
