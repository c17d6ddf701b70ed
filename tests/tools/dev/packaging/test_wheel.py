"""The wheel, installed into an empty environment, in a project that has packages named engine, ipc, store and tools."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import click
import pytest

from engine.monitoring.ha_status import ha_status
from ipc.compiled import carried
from ipc.module_names import version_of
from tests.harness.conditions import await_that
from tests.harness.installed import NAMES, ROOT, THEIRS_FIRST, Installed, build_wheel, pip, shared_wheel
from tests.harness.served_console import ServedConsole
from tests.tools.test_help import COMMANDS
from tools.common.local_broker import free_port
from tools.web.pages import STATIC, STATIC_PREFIX

pytestmark = [pytest.mark.broker, pytest.mark.minutes]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = version_of(PROJECT["version"], ROOT)
MESSAGES = 100
SESSION = """
import sys
{first}
import slipstream
assert not {{"numba", "pyspark"}} & set(sys.modules), "importing it costs little"
from slipstream import Producer, open_store
assert slipstream.__version__ == {version!r} and store.WHOSE
with Producer(sys.argv[1], timeout=120.0) as producer:
    assert producer.send("orders", b"one", keys="order-1").status.name == "PUT_OK"
    batch = producer.send_batch("orders", [b"%d" % number for number in range({messages})])
    assert (batch.status.name, batch.count) == ("PUT_OK", {messages})
opened = open_store(sys.argv[1])
bodies = [message.body for message in opened.messages("orders")]
assert opened.is_live and bodies == [b"one", *(b"%d" % number for number in range({messages}))]
(one,) = opened.find("order-1", "orders")
assert opened.at(one.physical_offset) == one and opened.topics()["orders"].messages == len(bodies)
assert opened.offsets()[1] > one.physical_offset
try:
    slipstream.session
except ImportError as missing:
    print(missing.code, missing)
"""
IN_SPARK = """
import sys
{first}
from slipstream import read, session
spark = session("project", "local[1]", **{{"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "1"}})
counted = read(spark, sys.argv[1], columns=["queueId"], topics=["orders"]).count()
rows = spark.createDataFrame([(b"from Spark",)], "body binary")
rows.write.format("rocketmq").mode("append").option("path", sys.argv[1]).option("topic", "orders").save()
print(counted, spark.read.format("rocketmq").load(sys.argv[1]).filter("topic = 'orders'").count(), store.WHOSE)
"""
EVERYTHING = """
import importlib, pkgutil, click
import slipstream
from slipstream.tools import cli
def failed(name): raise ImportError(name)
names = [module.name for module in pkgutil.walk_packages(slipstream.__path__, "slipstream.", onerror=failed)]
for name in names:
    if not name.endswith(".__main__"):
        importlib.import_module(name)
def helps(command, context):
    assert command.get_help(context), context.command_path
    below = command.list_commands(context) if isinstance(command, click.Group) else ()
    return 1 + sum(helps(one, click.Context(one, info_name=name, parent=context))
                   for name in below for one in [command.get_command(context, name)])
print(len(names), helps(cli.cli, click.Context(cli.cli, info_name="slipstream")))
"""
USER = """
from pathlib import Path

from slipstream import Producer, open_store, read, session


def report(path: Path) -> int:
    with Producer(path) as producer:
        result = producer.send("orders", b"one", tags="new")
        print(result.status.name, result.queue_offset + 1)
    texts: list[str] = [message.body.decode() for message in open_store(path).messages("orders")]
    read(session("report"), path, columns=["queueId"]).groupBy("queueId").count().show()
    return len(texts)
"""
MISTAKEN = """
from slipstream import Producer, open_store

Producer("store").send("orders", 5)
text: str = next(open_store("store").messages()).body
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in an environment of its own, its kernels compiled. All tests here use it, so it is made once."""
    directory = tmp_path_factory.mktemp("installed")
    made = Installed(directory, shared_wheel(tmp_path_factory))
    assert ("nothing is to be compiled" in made.run(made.command, "warm").stdout) == (carried.listed() is not None)
    return made


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_two_names_and_nothing_of_the_build(installed: Installed) -> None:
    files = contents(installed.wheel)
    information = f"slipstream_log-{VERSION}.dist-info"
    data = f"slipstream_log-{VERSION}.data"
    tops = {name.partition("/")[0] for name in files}
    assert tops == {"slipstream", "pyspark_slipstream.py", information, data}
    pages = {name.removeprefix(f"{data}/data/share/man/man1/") for name in files if name.startswith(data)}
    assert pages == {path.name for path in (ROOT / "docs" / "man").iterdir()}
    assert {"slipstream/py.typed", "slipstream/spark_bridge/USAGE.md", f"{information}/licenses/LICENSE"} <= set(files)
    assert not [name for name in files if "packaging" in name or "__pycache__" in name]
    modules = {name.removeprefix("slipstream/") for name in files if name.endswith(".py")}
    modules -= {"__init__.py", "__main__.py", "release.py"}
    there = {str(path.relative_to(ROOT)) for package in NAMES for path in (ROOT / package).rglob("*.py")}
    library = {f"slipstream/ipc/carried/{name}" for name in (carried.LIBRARY, carried.LIST)}
    assert library & set(files) == (library if carried.listed() else set())
    assert installed.wheel.name.endswith(".whl") and ("-cp311-abi3-manylinux" in installed.wheel.name) == bool(
        carried.listed()
    )
    assert modules - {"pyspark_slipstream.py"} == {name for name in there if not name.startswith("tools/dev/")}
    text = files[f"{information}/METADATA"].decode()
    assert not [target for target in re.findall(r"\]\(([^)]+)\)", text) if not re.match(r"\w+:|#", target)]


def test_the_source_distribution_has_tests_and_documents_and_builds_the_same_wheel(
    installed: Installed, tmp_path: Path
) -> None:
    build = "import sys; from tools.dev.packaging import backend; backend.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    checkout = tmp_path / path.name.removesuffix(".tar.gz")
    assert not list(checkout.rglob("__pycache__"))
    for name in ("tests/test_tidy.py", "docs/replication.md", "Makefile", ".ci/run", "CHANGELOG.md"):
        assert (checkout / name).read_bytes() == (ROOT / name).read_bytes()
    again, ours = contents(build_wheel(checkout, tmp_path / "again")), contents(installed.wheel)
    assert all(again[name] == ours[name] for name in again if not name.endswith(("/RECORD", "/WHEEL")))
    assert {name for name in ours if name not in again} <= {
        f"slipstream/ipc/carried/{name}" for name in (carried.LIBRARY, carried.LIST)
    }, "compiled code is not in a source distribution"


def test_a_sync_pair_and_the_command_line(installed: Installed, tmp_path: Path) -> None:
    run, cli, ha_port = installed.run, installed.command, free_port()
    assert "Usage: slipstream" in run(cli, "--help").stdout
    assert run(cli, "--version").stdout == f"slipstream {VERSION}\n"
    assert run(installed.python, "-m", "slipstream", "--version").stdout == run(cli, "--version").stdout
    assert run(cli, "status", tmp_path, code=3).stderr.startswith("slipstream: NO_BROKER: ")
    patient = {"slaveTimeout": 120_000, "haHousekeepingInterval": 120_000}
    both = {"brokerClusterName": "pair", "brokerName": "pair", **patient}
    slave_of = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": f"127.0.0.1:{ha_port}"}
    with (
        installed.broker(tmp_path / "m", brokerRole="SYNC_MASTER", haListenPort=ha_port, **both) as master,
        installed.broker(tmp_path / "s", **slave_of, **both) as slave,
    ):
        await_that(lambda: ha_status(master).in_sync_slaves >= 1, "the slave is in sync")
        lines = "".join(f"{number}\n" for number in range(MESSAGES))
        produced = run(cli, "produce", "--store", master, "--topic", "numbers", "--timeout", "120", given=lines)
        assert f"{MESSAGES} messages acknowledged" in produced.stdout + produced.stderr
        script = SESSION.format(first=THEIRS_FIRST, version=VERSION, messages=MESSAGES)
        missing = run(installed.python, "-c", script, master).stdout
        assert missing.startswith("EXTRA_MISSING slipstream.session needs the package pyspark")
        assert "pip install 'slipstream-log[spark]'" in missing and missing.count("\n") == 1
        assert json.loads(run(cli, "status", master, "--json").stdout)
        for view in (["counters"], ["stats"], ["clients"], ["groups"], ["ha", "status"], ["log", "stat"]):
            run(cli, *view, master)
        module = [installed.python, "-m", "slipstream.tools.cli"]
        assert run(*module, "log", "cat", slave, "--topic", "numbers").stdout.count("\n") == MESSAGES
    assert "equal in" in run(cli, "log", "diff", master, slave).stdout
    run(cli, "log", "verify", master)
    console_serves_all_of_its_files(installed, master)


def console_serves_all_of_its_files(installed: Installed, store: Path) -> None:
    """`slipstream web` as it is installed: its page, each script, style and picture, and figures of a store."""
    files = {str(path.relative_to(STATIC)): path for path in STATIC.rglob("*") if path.is_file()}
    assert {"style.css", "icon.svg", "js/main.js", "shell.html"} <= files.keys()
    with ServedConsole(
        store, command=installed.command, environment=installed.environment, folder=installed.project
    ) as console:
        assert console.ask("/").body == files["shell.html"].read_bytes()
        for name, path in files.items():
            answer = console.ask(f"{STATIC_PREFIX}{name}")
            assert (answer.status, answer.body) == (200, path.read_bytes()), name
        assert len(console.ask("/api/search?by=newest&topic=numbers").json["messages"]) > 1


def test_without_spark_the_demonstration_says_which_extra_is_missing(installed: Installed) -> None:
    said = installed.run(installed.command, "run", code=2)
    assert said.stderr.startswith("slipstream: EXTRA_MISSING: `slipstream run` needs the package pyspark")
    assert "pip install 'slipstream-log[spark]'" in said.stderr and said.stderr.count("\n") == 1


def test_spark_reads_in_place_and_writes(installed: Installed, tmp_path: Path) -> None:
    with installed.with_spark(), installed.broker(tmp_path / "m", brokerRole="ASYNC_MASTER") as store:
        lines = "".join(f"{number}\n" for number in range(MESSAGES))
        command = [installed.command, "produce", "--store", store, "--topic", "orders", "--timeout", "120"]
        installed.run(*command, given=lines)
        ran = installed.run(installed.python, "-c", IN_SPARK.format(first=THEIRS_FIRST), store)
    assert ran.stdout == f"{MESSAGES} {MESSAGES + 1} the project's\n"


def test_every_module_of_the_wheel_can_be_imported_and_every_command_has_its_help(installed: Installed) -> None:
    with installed.with_spark():
        modules, commands = map(int, installed.run(installed.python, "-c", EVERYTHING).stdout.split())
    assert modules > 500 and commands == len(COMMANDS)


def test_a_users_program_passes_strict_mypy_and_a_mistaken_one_does_not(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "mistaken.py").write_text(MISTAKEN)
    strict = ["--strict", "--python-executable", str(installed.python), "--cache-dir", str(tmp_path / "cache")]
    with installed.with_spark():
        ran = subprocess.run(
            [sys.executable, "-m", "mypy", *strict, "user.py", "mistaken.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    faults = [line.split(": error: ") for line in ran.stdout.splitlines() if ": error: " in line]
    assert [(place, text.rpartition("[")[2]) for place, text in faults] == [
        ("mistaken.py:4", "call-overload]"),
        ("mistaken.py:5", "assignment]"),
    ], ran.stdout + ran.stderr


PYTHONS = sorted({path.name for place in ("/usr/bin", "/usr/local/bin") for path in Path(place).glob("python3.1[1-9]")})


@pytest.mark.parametrize("name", PYTHONS)
def test_each_python_of_this_machine_takes_all_of_it(name: str, installed: Installed, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    pip("install", "--no-deps", "--no-index", "--no-compile", "--target", packages, installed.wheel)
    (packages / "click").symlink_to(Path(click.__file__).parent)
    installed.run(name, "-W", "error", "-m", "compileall", "-q", packages / "slipstream")
    script = f"import sys; sys.path.insert(1, {str(packages)!r}); import slipstream; slipstream.main()"
    assert "Exit codes: 0 all well" in installed.run(name, "-B", "-c", script, "--help").stdout


def test_an_uninstallation_leaves_nothing(installed: Installed, tmp_path: Path) -> None:
    copy = tmp_path / "environment"
    shutil.copytree(installed.directory, copy, symlinks=True)
    compiled = "carried.json" if carried.listed() else "kernels-*"
    assert list((copy / "lib").rglob(compiled)), "compiled code lies there, too"
    pip("--python", copy / "bin" / "python", "uninstall", "--yes", "slipstream-log")
    empty = {"share", "share/man"}  # which packages share: pip takes the folder of the pages alone
    assert installed.listing(copy) - installed.before <= empty
    assert installed.before - installed.listing(copy) == set()
