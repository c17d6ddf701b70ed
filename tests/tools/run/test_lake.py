"""`slipstream lake` as it is typed: what it prints, what it refuses, and a loader beside a running broker."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.producer import Producer
from ipc import extras
from store.upkeep import leases
from tests.harness.command_line import run
from tests.harness.conditions import await_that
from tests.harness.small_disk import SmallDisk
from tests.spark_bridge.lakes import FORMATS, Lake
from tests.spark_bridge.registries import DESCRIPTORS, PROTOBUF_BODIES
from tools.common.local_broker import LocalBroker

ROOT = Path(__file__).resolve().parents[3]
CONFLUENT_BYTES = 7  # of a body of the registry: 0, the schema, and which of its messages this is
HEAVY = "pyarrow pyiceberg deltalake numpy numba spark_bridge"


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path, request.param)


def typed(lake: Lake, *more: object, store: object = "") -> tuple[object, ...]:
    catalog = ("--catalog", lake.properties["uri"]) if lake.format == "iceberg" else ()
    return ("lake", store or lake.store.root, "--to", lake.format, "--table", lake.name, *catalog, *more)


def test_what_was_committed_is_printed(lake: Lake) -> None:
    lake.fill(25)
    ran = run(*typed(lake, "--once", "--max-rows", 10, "--json"))
    assert ran.exit_code == 0, ran.stderr
    commits = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [(one["schema"], one["table"], one["rows"]) for one in commits] == [
        ("slipstream.lake/1", lake.name, rows) for rows in (10, 10, 5)
    ]
    assert run(*typed(lake, "--once")).stdout == "nothing new\n"
    lake.fill(5)
    ran = run(*typed(lake, "--once"))
    assert ran.stdout.splitlines()[-1] == "5 rows in 1 commit"
    assert lake.places() == lake.expected


def test_a_schema_file_and_message_columns_are_taken(lake: Lake, tmp_path: Path) -> None:
    lake.put("orders", b'{"id": 1}')
    schema = tmp_path / "order.ddl"
    schema.write_text("id bigint\n")
    ran = run(*typed(lake, "--once", "--decode", "json", "--schema", schema, "--columns", "topic, queueId,body"))
    assert ran.exit_code == 0, ran.stderr
    assert lake.table().to_pylist() == [{"topic": "orders", "queueId": 0, "id": 1}]
    ran = run(*typed(lake, "--once", "--columns", "topic,queueId,body"))
    assert ran.exit_code == 2
    assert ran.stderr.startswith("slipstream: LAKE_SCHEMA: ")
    assert ran.stderr.count("\n") == 1


def test_protobuf_goes_by_a_descriptor_set_and_a_message(lake: Lake, tmp_path: Path) -> None:
    lake.put("orders", PROTOBUF_BODIES[0][CONFLUENT_BYTES:])
    descriptors = tmp_path / "orders.desc"
    descriptors.write_bytes(DESCRIPTORS)
    protobuf = ("--once", "--decode", "protobuf", "--schema", descriptors, "--columns", "body")
    ran = run(*typed(lake, *protobuf))
    assert ran.exit_code == 2 and "protobufMessage" in ran.stderr and ran.stderr.count("\n") == 1
    ran = run(*typed(lake, *protobuf, "--message", "shop.Order"))
    assert ran.exit_code == 0, ran.stderr
    assert [row["state"] for row in lake.table().to_pylist()] in (["NEW"], ["PAID"])


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("--to", "iceberg", "--table", "raw.t"), 2, "--catalog is missing"),
        (("--to", "delta", "--table", "t", "--decode", "json", "--message", "a.B"), 2, "needs --decode protobuf"),
        (("--to", "iceberg", "--table", "t", "--catalog", "sqlite:///x.db"), 2, "NAMESPACE.NAME"),
        (("--to", "delta", "--table", "t", "--catalog", "sqlite:///x.db"), 2, "belong to --to iceberg"),
        (("--to", "delta", "--table", "t", "--schema", __file__), 2, "needs --decode"),
        (("--to", "delta", "--table", "t", "--option", "subExpression"), 2, "NAME=VALUE"),
        (("--to", "delta", "--table", "t", "--option", "endingOffsets=latest"), 2, "one of batch reads"),
        (("--to", "delta", "--table", "t", "--option", "commitGroup=g"), 2, "commits to no group"),
        (("--to", "delta", "--table", "t", "--columns", "bodies"), 2, "no column 'bodies'"),
        (("--to", "iceberg", "--table", "raw.t", "--catalog", "nothing.properties"), 2, "cannot be read"),
        (("--to", "iceberg", "--table", "raw.t", "--catalog", "http://me:hush@127.0.0.1:9/"), 4, "cannot be opened"),
        (("--to", "delta", "--table", "s3://nowhere/t"), 4, "LAKE_FAILED"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    arguments: tuple[str, ...], code: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "x",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    lake = Lake(tmp_path, "delta")
    lake.fill(3)
    ran = run("lake", lake.store.root, *arguments, "--once")
    assert (ran.exit_code, ran.stderr.count("\n")) == (code, 1), ran.stderr
    assert why in ran.stderr
    assert "hush" not in ran.output


def test_a_missing_package_is_reported_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "deltalake" else name)
    ran = run("lake", tmp_path, "--to", "delta", "--table", "t", "--once")
    assert ran.exit_code == 2
    assert "needs the package deltalake" in ran.stderr and "slipstream-log[lake]" in ran.stderr


def test_a_full_disk_ends_the_load_and_it_goes_on_later(lake: Lake) -> None:
    disk = SmallDisk(lake.directory / "disk", 4 << 20, "tmpfs")

    def loaded() -> tuple[int, str]:
        """On the disk, as those see it who have it mounted."""
        table = ("--to", "delta", "--table", disk.directory / "delta")
        if lake.format == "iceberg":
            warehouse = (disk.directory / "warehouse").as_uri()
            catalog = lake.properties["uri"]
            table = ("--to", "iceberg", "--table", lake.name, "--catalog", catalog, "--warehouse", warehouse)
        arguments = ["lake", lake.store.root, *table, "--once"]
        command = [*disk.inside, sys.executable, "-m", "tools.cli", *map(str, arguments)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        return ran.returncode, ran.stderr

    with disk:
        lake.fill(5)
        assert loaded() == (0, "")
        disk.fill()
        lake.fill(5)
        code, error = loaded()
        error = error.splitlines()[-1]  # a thread of deltalake's own may have told of a panic before
        assert code == 4
        assert error.startswith("slipstream: LAKE_FAILED: ")
        assert "No space left on device" in error and "continues after its last commit" in error
        disk.free()
        assert loaded() == (0, "")
        shutil.copytree(disk.path, disk.directory, dirs_exist_ok=True)
    lake.name = str(disk.directory / "delta") if lake.format == "delta" else lake.name
    assert lake.places() == lake.expected


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from tools.cli import run_command; run_command(['lake', '--help']);"
        f"loaded = set({HEAVY!r}.split()) & set(sys.modules); assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=300, capture_output=True)


@contextmanager
def following(lake: Lake, broker: LocalBroker) -> Iterator[subprocess.Popen[str]]:
    """A loader that follows the log, in a process of its own."""
    arguments = map(str, typed(lake, "--every", "1s", "--json", store=broker.store))
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.cli", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_loader_follows_a_broker_holds_the_log_and_ends_in_order(lake: Lake, tmp_path: Path) -> None:
    def lines(process: subprocess.Popen[str], rows: int) -> None:
        assert process.stdout is not None
        while rows > 0:
            rows -= int(json.loads(process.stdout.readline())["rows"])

    with (
        LocalBroker(tmp_path / "broker", brokerName="shop", mappedFileSizeCommitLog=1 << 20) as broker,
        Producer(broker.store, timeout=60) as producer,
    ):
        for number in range(50):
            producer.send("orders", b"%d" % number, timeout=60)
        with following(lake, broker) as killed:
            lines(killed, 50)
            await_that(lambda: leases.held_from(broker.store, 0) is not None, "it holds the log")
            killed.kill()
        for number in range(50, 80):
            producer.send("orders", b"%d" % number, timeout=60)
        with following(lake, broker) as process:
            lines(process, 30)
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0
            await_that(lambda: leases.held_from(broker.store, 0) is None, "it gives the log back")
    assert sorted(int(place[3] or b"") for place in lake.places()) == list(range(80))
