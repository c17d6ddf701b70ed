"""The blocks of the pages that say how to do something: run as they stand, or read by what reads such a file."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.producer import Producer
from engine.settings import name_server_keys, tls_file
from engine.settings.config import load
from tests.harness.certificates import Authority
from tests.harness.command_line import run
from tests.harness.conditions import await_that
from tests.harness.page_blocks import ROOT, Session, all_blocks_of, blocks_of, commands_in_path
from tools.common.local_broker import LocalBroker, free_port

KINDS = {"sh", "python", "java", "properties", "yaml", ""}
# Which test runs the blocks of a page; those of no kind are what something printed.
RUN_BY = {
    "clients.md": "test_a_name_server_and_a_broker_for_clients",
    "configuration.md": "test_the_files_of_the_page_on_configuration_are_taken",
    "columnar.md": "tests/spark_bridge/columnar/test_page.py",
    "flight.md": "tests/spark_bridge/flight/test_page.py",
    "arrow.md": "tests/spark_bridge/test_arrow_page.py",
    "lake.md": "tests/spark_bridge/lake/test_page.py",
    "monitoring/README.md": "test_prometheus_takes_the_scrape_configuration",
    "operations.md": "test_an_old_master_comes_back",
    "python-clients.md": "tests/tools/dev/docs/test_python_clients.py",
    "python-recipes.md": "tests/tools/dev/docs/test_python_recipes.py",
    "run-it.md": "tests/tools/dev/docs/test_run_it.py",
    "security.md": "test_the_files_of_the_page_on_security_are_taken",
    "spark.md": "tests/spark_bridge/test_guide.py",
    "spark-clusters.md": "tests/tools/dev/docs/test_spark_clusters.py",
    "tutorials/append.md": "tests/tools/dev/docs/test_tutorials.py",
    "tutorials/consume.md": "tests/tools/dev/docs/test_tutorials.py",
    "tutorials/attach.md": "tests/spark_bridge/test_attach_tutorial.py",
    "tutorials/java-clients.md": "tests/tools/dev/docs/test_tutorials.py",
    "tutorials/pair.md": "tests/tools/dev/docs/test_tutorials.py",
}
STEPS = re.compile(r"^# (?:stop|start) its broker\n", re.MULTILINE)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with commands_in_path(monkeypatch, tmp_path):
        yield tmp_path


def test_every_block_is_run_or_says_why_not() -> None:
    pages = [str(path.relative_to(ROOT / "docs")) for path in sorted((ROOT / "docs").rglob("*.md"))]
    assert RUN_BY.keys() <= set(pages)
    for page in pages:
        assert {block.kind for block in all_blocks_of(page)} <= KINDS, page
        wanted = [block.text for block in blocks_of(page) if block.kind]
        assert not wanted or page in RUN_BY, f"docs/{page}: nothing runs {wanted[0]}"


def test_a_name_server_and_a_broker_for_clients(directory: Path) -> None:
    port, names = free_port(), free_port()
    (directory / "broker.properties").write_text(
        f"brokerName=shop\nbrokerIP1=127.0.0.1\nlistenPort={port}\nstorePathRootDir={directory}/store\n"
        "mappedFileSizeCommitLog=1048576\nmetricsPromExporterPort=0\n"
    )
    instead = {
        "--host 0.0.0.0 &": f"--host 127.0.0.1 --port {names} &",
        "10.0.0.1:9876": f"127.0.0.1:{names}",
        "broker -c broker.properties": "broker -c broker.properties &",
    }
    with Session("clients.md", directory, instead) as session:
        assert session.run() == 1
        listed = ("admin", "clusterList", "-n", f"127.0.0.1:{names}")
        await_that(lambda: "shop" in run(*listed).stdout, "the broker is registered")


def test_an_old_master_comes_back(directory: Path) -> None:
    common = {"brokerName": "pair", "mappedFileSizeCommitLog": 1 << 20, "haReconnectInterval": 100}
    master_keys, slave_keys = {"brokerRole": "ASYNC_MASTER"}, {"brokerRole": "SLAVE", "brokerId": 1}
    first, second = (block.text for block in blocks_of("operations.md") if block.kind)
    data = directory / "data"
    with LocalBroker(data / "old", **common, **master_keys) as master:
        with LocalBroker(data / "new", **common, **slave_keys, haMasterAddress=master.ha_address) as follower:
            await_that(lambda: "TRANSFER" in run("ha", "status", follower.store).stdout, "the slave follows")
            put(master, b"both have this")
            equal = ("replica", "check", follower.store, "--with", f"127.0.0.1:{master.port}")
            await_that(lambda: run(*equal).stdout.startswith("IDENTICAL"), "the slave has it")
            written = {"/data/slave": follower.store, "MASTER_HOST:10911": f"127.0.0.1:{master.port}"}
            session = Session("operations.md", directory, written)
            session.shell(first)
            assert "IDENTICAL" in session.printed()
        put(master, b"nobody else has this")
    with LocalBroker(data / "new", **common, **slave_keys, haMasterAddress=master.ha_address) as promoted:
        assert run("promote", promoted.store).exit_code == 0
        put(promoted, b"what the new master took")
        keys = {**common, "brokerRole": "SLAVE", "brokerId": 2, "haMasterAddress": promoted.ha_address}
        written = {
            "/data/master": data / "old" / "store",
            "NEW_HOST:10911": f"127.0.0.1:{promoted.port}",
            "slipstream.kept-00000000000001234567": "slipstream.kept-*",
        }
        look, rewind, kept = STEPS.split(second)
        session = Session("operations.md", directory, written)
        with LocalBroker(data / "old", **keys) as old:
            said = ("ha", "status", old.store)
            await_that(lambda: "differ from offset" in run(*said).stdout, "the logs are seen to have parted")
            session.shell(look)
            assert "differ from offset" in session.printed()
        session.shell(rewind)
        with LocalBroker(data / "old", **keys) as old:
            session.shell(kept)
            assert "nobody else has this" in session.printed()
            again = ("replica", "check", old.store, "--with", f"127.0.0.1:{promoted.port}")
            await_that(lambda: run(*again).stdout.startswith("IDENTICAL"), "the old master follows")


def put(broker: LocalBroker, body: bytes) -> None:
    with Producer(broker.store, timeout=60) as producer:
        producer.send("orders", body, timeout=60)


def test_the_files_of_the_page_on_configuration_are_taken(directory: Path) -> None:
    blocks = blocks_of("configuration.md")
    assert {block.kind for block in blocks} == {"properties"}
    for number, block in enumerate(blocks):
        file = directory / f"{number}.properties"
        file.write_text(block.text.replace("/data", str(directory)))
        config, warnings = load(str(file))
        assert not warnings and config.broker_ip1 == "127.0.0.1"


def test_the_files_of_the_page_on_security_are_taken(directory: Path) -> None:
    authority = Authority(directory / "ca")
    own = authority.issue("node")
    for given, name in ((own.certificate, "node.pem"), (own.key, "node.key"), (authority.certificate, "ca.pem")):
        shutil.copy(given, directory / name)
    blocks = blocks_of("security.md")
    texts = [block.text.replace("/etc/slipstream", str(directory)) for block in blocks]
    assert {block.kind for block in blocks} == {"properties"} and len(texts) == 4
    files = [directory / f"{number}.properties" for number in range(4)]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    broker, names, tls, replication = files
    config, warnings = load(str(broker))
    assert not warnings and config.ha_callers_max == 512 and config.ha_secret_file == directory / "ha.secret"
    values, warnings = name_server_keys.load(names)
    assert not warnings and values["host"] == "10.1.0.5"
    assert tls_file.load(tls).server_own is not None
    config, warnings = load(str(replication))
    assert not warnings and config.ha_tls_config_file == directory / "ha-tls.properties"


def test_prometheus_takes_the_scrape_configuration(directory: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool on this machine: install Debian's package prometheus")
    (block,) = blocks_of("monitoring/README.md")
    assert block.kind == "yaml"
    (directory / "prometheus.yml").write_text(block.text)
    checked = [promtool, "check", "config", "prometheus.yml"]
    done = subprocess.run(checked, cwd=directory, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
