"""Spark on a real YARN: jobs in client and in cluster mode that read a store and write to it, their rows compared.

    python -m tests.yarn [--ledger docs/yarn.md]

Hadoop's daemons are fetched by Maven once, of the version whose client PySpark brings. A job for each way to send the
package; as root also as the user nobody, with leases and without.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import pyspark

from engine.producer import Producer
from ipc.module_names import SOURCES
from spark_bridge import java_home
from store.names import LEASES
from store.reading.log_reader import open_log
from store.reading.summary import messages
from tests.harness.installed import build_wheel
from tests.harness.other_user import NOBODY, OtherUser
from tests.spark_bridge.archives import make_environment, pack
from tests.spark_bridge.flights import FlightProcess
from tests.yarn.cluster import hadoop_version, jars
from tests.yarn.run import ARCHIVE, CONFIGURED, ENVIRONMENT, INSTALLED, PY_FILES, TOPIC, Case, Material, Ran, run
from tools.common.local_broker import LocalBroker

ROWS = 20_000
READERS = 54321
OPEN, WITHOUT_LEASES = 0o755, 0o750
NOT_HERE = 2
CLIENT, CLUSTER = "client", "cluster"
OWN = [Case(mode, way, f"{mode}{way}") for way in (ARCHIVE, PY_FILES) for mode in (CLIENT, CLUSTER)]
OWN.append(Case(CLUSTER, INSTALLED, INSTALLED))
OF_NOBODY = [Case(CLUSTER, CONFIGURED, "nobody"), Case(CLIENT, CONFIGURED, "nobody-without-leases")]
AS_NOBODY = "import sys; from tests.yarn.run import main; main(*sys.argv[1:])"
HEAD = """# Spark on YARN, really run

Written by `make yarn`. Hadoop {hadoop}'s ResourceManager and two NodeManagers run on one host, from Maven Central
(`hadoop-client-minicluster`), with containers of `DefaultContainerExecutor` and without HDFS. PySpark {spark}, Java
{java}, Python {python}. A master runs on that host, and a Flight server with `--writable` beside it.

Each job has two executors of one core. It reads {rows:,} messages in place and through Flight, each as a batch and as
a streaming query to its end (`availableNow`), and writes {rows:,} rows. Every row was there once, as in the log. Both
executors read, in the folders of their containers, with the package that was sent. Options are those of
[spark-clusters.md](spark-clusters.md). The machine has {cores} cores, and does other work, too.

| deploy mode | the package | containers of | leases | rows read: batches, streams | rows written | took |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    """A job that ended well, and who its containers ran as."""

    case: Case
    user: str
    ran: Ran


def make_material(folder: Path, store: Path, location: str) -> Material:
    """All that jobs bring along; nothing is fetched but the daemons, before."""
    here = folder / "material"
    environment, archive, package = here / ENVIRONMENT, here / "environment.tar.gz", here / "slipstream.zip"
    wheel = build_wheel(SOURCES, here / "wheel")
    make_environment(environment, wheel)
    pack(environment, archive)
    wheel.rename(package)
    bare = here / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    (packages,) = bare.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    daemons = here / "daemons"
    shutil.copytree(jars().folder, daemons)  # where every user finds them
    program = here / "job.py"
    program.write_bytes(Path(__file__).with_name("job.py").read_bytes())
    return Material(
        str(store),
        location,
        str(program),
        ROWS,
        str(daemons),
        str(archive),
        str(environment),
        str(package),
        str(bare / "bin" / "python"),
    )


@contextmanager
def served(folder: Path) -> Iterator[Material]:
    """A master with messages, its Flight server, and what jobs take to reach them."""
    keys = {"storeGroup": READERS} if os.geteuid() == 0 else {}
    with LocalBroker(folder / "broker", brokerRole="ASYNC_MASTER", mappedFileSizeCommitLog=1 << 19, **keys) as broker:
        (folder / "broker").chmod(OPEN)
        with Producer(broker.store, timeout=60.0) as producer:
            producer.send_batch(TOPIC, [str(number).encode() for number in range(ROWS)])
        with FlightProcess(broker.store, "--no-token", "--writable") as server:
            yield make_material(folder, broker.store, server.location)


def bodies_of(store: str, topic: str) -> Counter[str]:
    """What the log has of a topic."""
    reader = open_log(store)
    found = messages(reader, reader.min_offset, reader.max_offset)
    return Counter(bytes(message.body).decode() for message in found if message.topic == topic)


def check(material: Material, case: Case, ran: Ran, user: int) -> None:
    """Rows as in the log, by two executors of that user in containers of their own, with what was sent."""
    expected = bodies_of(material.store, TOPIC)
    assert expected.total() == ROWS and bodies_of(material.store, case.written) == expected, f"{case}: written rows"
    for way, replica in (("in place", "in place"), ("Flight", material.location)):
        found = ran.found[f"batch, {way}"]
        assert Counter(found["bodies"]) == expected, f"{case}: batch, {way}"
        assert Counter(ran.found[f"stream, {way}"]) == expected, f"{case}: stream, {way}"
        assert len({place[0] for place in found["places"]}) == len(found["places"]) == 2, f"{case}: {found['places']}"
        for folder, who, prefix, package, source in found["places"]:
            assert "/usercache/" in folder and (who, source) == (user, replica), f"{case}: {folder} {who} {source}"
            begins = sent(material, case, folder)
            assert (prefix, str(Path(folder, package))[: len(begins[1])]) == begins, f"{case}: {prefix} {package}"


def sent(material: Material, case: Case, folder: str) -> tuple[str, str]:
    """Where an executor's Python is, and what the path of the package that it has begins with."""
    if case.way == PY_FILES:
        return str(Path(material.python).parents[1]), f"{folder}/slipstream.zip/"
    if case.way == INSTALLED:
        return sys.prefix, str(SOURCES)
    return f"{folder}/{ENVIRONMENT}", f"{folder}/{ENVIRONMENT}/lib/"


def of_nobody(folder: Path, material: Material) -> Iterator[Row]:
    """Jobs whose daemons, containers and driver are another user's; of the last one leases are not to be written."""
    for number, case in enumerate(OF_NOBODY):
        place = folder / f"nobody-{number}"
        place.mkdir(mode=OPEN)
        user = OtherUser(place, READERS)
        if why := user.why_not():
            click.echo(f"not as nobody: {why}")
            return
        is_without = number == 1
        if is_without:
            Path(material.store, LEASES).chmod(WITHOUT_LEASES)
        ended = user.run(AS_NOBODY, user.home, json.dumps(asdict(material)), json.dumps([asdict(case)]))
        assert ended.returncode == 0, ended.stdout + ended.stderr[-8000:]
        (ran,) = (Ran(**one) for one in json.loads(ended.stdout.splitlines()[-1]))
        check(material, case, ran, NOBODY)
        assert ran.is_without_lease == is_without, f"{case}: {ran.is_without_lease=}"
        yield Row(case, "nobody", ran)


def rows_of(folder: Path) -> Iterator[Row]:
    """Each job, once it was checked."""
    with served(folder) as material:
        own = folder / "own"
        own.mkdir()
        for case, ran in zip(OWN, run(own, material, OWN), strict=True):
            check(material, case, ran, os.getuid())
            assert not ran.is_without_lease, f"{case}: it read without a lease"
            yield Row(case, "who runs the brokers", ran)
        yield from of_nobody(folder, material)


def ledger_text(rows: Sequence[Row]) -> str:
    """The page."""
    settings = ["java", "-XshowSettings:properties", "-version"]
    asked = subprocess.run(settings, capture_output=True, text=True, check=True)
    (java,) = (line.split()[-1] for line in asked.stderr.splitlines() if line.strip().startswith("java.version ="))
    return HEAD.format(
        hadoop=hadoop_version(),
        spark=pyspark.__version__,
        java=java,
        python=platform.python_version(),
        rows=ROWS,
        cores=os.cpu_count() or 1,
    ) + "".join(map(line_of, rows))


def line_of(row: Row) -> str:
    """Of the page's table."""
    way = row.case.way if row.case.way == INSTALLED else f"`{row.case.way}`"
    leases = "none to be had, as was said" if row.ran.is_without_lease else "held"
    written = "in place" if row.case.is_written_in_place else "through Flight"
    rows = f"{2 * ROWS:,}, {2 * ROWS:,} | {ROWS:,} {written}"
    return f"| {row.case.mode} | {way} | {row.user} | {leases} | {rows} | {row.ran.seconds:.0f} s |\n"


@click.command()
@click.option("--ledger", type=click.Path(path_type=Path, dir_okay=False), help="The page to write.")
def main(ledger: Path | None) -> None:
    """Run all of them; nothing is left behind."""
    java_home.ensure()
    if (why := jars().missing()) is not None:
        click.echo(f"no YARN: {why}", err=True)
        sys.exit(NOT_HERE)
    rows: list[Row] = []
    folder = Path(tempfile.mkdtemp(prefix="slipstream-yarn-"))
    try:
        folder.chmod(OPEN)
        for row in rows_of(folder):
            click.echo(f"{row.case.mode}, {row.case.way}, containers of {row.user}: {row.ran.seconds:.0f} s")
            rows.append(row)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if ledger is not None:
        ledger.write_text(ledger_text(rows))


if __name__ == "__main__":
    main()
