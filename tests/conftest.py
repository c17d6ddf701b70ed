"""What all tests share: tiers, an order, a Java for Spark, and directories and ports of their own, to run side by side.

The tests of a module that can start a broker, a name server or RocketMQ are marked `broker`, those that use the Spark
session `spark`; both happen here. A test without these marks that starts one nevertheless fails: `make quick` is quick.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from ipc import chance
from tests.harness import forked, forks
from tests.harness.distribution import Shared, group_of, order, slowest_files
from tests.harness.leftovers import Folder
from tests.harness.scheduler import GroupScheduling, tell_groups
from tools.common import local_broker

STARTERS = (
    "tools.common.local_broker", "tests.interop.", "tests.differential.", "tests.fuzz.", "tests.spark_bridge.stream",
)  # fmt: skip
LIVE_MARKS = ("broker", "interop", "crash", "spark")
SECONDS_KEY = "slipstream/seconds"
SHARED_MEMORY = Path("/dev/shm")
FILES = 20_000
DISK_PERCENT = 80  # brokers clean stores above 85 %, and the run itself needs some
REPOSITORY = Folder(Path(__file__).resolve().parent.parent)
JAVA_OF_SETUP = Path(sys.prefix) / "java"

# How long an example takes says how busy the machine is, and nothing of what is tested. CI tries the same examples each
# time: hypothesis would draw some of them from the sources of whatever a worker has imported by then.
IS_CI = bool(os.environ.get("CI"))
settings.register_profile("unhurried", deadline=None, derandomize=IS_CI, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
if IS_CI:
    providers._get_local_constants = lambda: providers._local_constants

# Every worker and every broker that a test starts would compile all modules anew: a third of a broker's start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A test with hundreds of connections, and what a worker's other tests have open, shall not meet a shell's 1024.
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, FILES)), hard))

local_broker.LocalBroker.start = staticmethod(forked.start)

os.fork = forks.running(os.fork)

_end_of_with = subprocess.Popen.__exit__


def _ended(process: subprocess.Popen[Any], kind: Any, error: Any, trace: Any) -> None:
    """At the end of `with Popen(...)`: a test that fails there would wait for ever for a process that nobody ends."""
    if kind is not None:
        process.kill()
    _end_of_with(process, kind, error, trace)


setattr(subprocess.Popen, "__exit__", _ended)  # noqa: B010

# A shell's `make test &` and `nohup` ignore signals, and what tests start and signal would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)


def pytest_configure(config: pytest.Config) -> None:
    """Spark tests use the Java that `make setup` found and tried."""
    if (JAVA_OF_SETUP / "bin" / "java").exists():
        os.environ["JAVA_HOME"] = str(JAVA_OF_SETUP)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config))


def pytest_sessionstart(session: pytest.Session) -> None:
    """What is captured of logs keeps pytest's form. It adds its handlers to each logger that does not propagate, and
    PySpark's, which are such loggers behind the first error of a query, give JSON to every handler, for good."""
    plugin: Any = session.config.pluginmanager.get_plugin("logging-plugin")
    for handler in (plugin.caplog_handler, plugin.report_handler):
        handler.setFormatter = lambda _formatter: None


class Recorder:
    """In the process that hands out tests: remembers how long each took, and tells the workers of the last run.

    What the workers say of the groups goes to the scheduler through a file.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="slipstream-groups-")
        self._cache = getattr(config, "cache", None)  # none with -p no:cacheprovider
        self._known: dict[str, float] = self._cache.get(SECONDS_KEY, {}) if self._cache else {}
        self._spent: dict[str, float] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["seconds"] = self._known
        node.workerinput["groups"] = str(self._groups)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> GroupScheduling:
        return GroupScheduling(config, log, self._groups)

    @property
    def _groups(self) -> Path:
        return Path(self._scratch.name) / "groups.json"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._spent[report.nodeid] = self._spent.get(report.nodeid, 0.0) + report.duration

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print where the run spent its time, and whether the disk was too full for brokers to take messages."""
        disk = shutil.disk_usage(tempfile.gettempdir())
        if (percent := 100 * disk.used // (disk.used + disk.free)) > DISK_PERCENT:
            terminalreporter.section("the disk is too full")
            terminalreporter.write_line(
                f"The disk of {tempfile.gettempdir()} is used to {percent} %. RocketMQ 5, and brokers like it, clean"
                f" their stores above 85 % and refuse messages above 90 %: failed tests may pass when there is room."
            )
        terminalreporter.section("slowest files")
        for file, seconds in slowest_files(self._spent):
            terminalreporter.write_line(f"{seconds:8.1f} s  {file}")

    def pytest_sessionfinish(self) -> None:
        self._scratch.cleanup()
        if self._cache and self._spent:
            self._cache.set(SECONDS_KEY, {**self._known, **{name: round(s, 2) for name, s in self._spent.items()}})


class Tiers:
    """Keeps the marks true: without one of them a test may start neither a JVM nor a broker nor a name server."""

    test: str | None = None  # which one runs, if it has no such mark

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook."""
        if event == "subprocess.Popen" and self.test is not None and _is_live(arguments[1]):
            raise AssertionError(f"{self.test} is not marked with one of {LIVE_MARKS} and starts {arguments[1]}")


def _is_live(command: object) -> bool:
    words = [command] if isinstance(command, str) else [str(word) for word in command]  # type: ignore[attr-defined]
    ours = any(word == "tools.cli" or word.endswith("/slipstream") for word in words)
    return Path(words[0]).name == "java" or (ours and not {"broker", "namesrv", "run"}.isdisjoint(words))


tiers = Tiers()
sys.addaudithook(tiers.audit)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """What runs now, for the audit."""
    tiers.test = None if any(item.get_closest_marker(mark) for mark in LIVE_MARKS) else item.nodeid
    try:
        return (yield)  # type: ignore[return-value]
    finally:
        tiers.test = None


def pytest_xdist_auto_num_workers() -> int:
    """One more than cores: a third of the tests' time is waiting. More of them would make tests with time limits of
    others fail: Spark grants its Python workers ten seconds to start."""
    return len(os.sched_getaffinity(0)) + 1


def _shared(item: pytest.Item) -> Shared:
    """What the distribution has to know of a test."""
    definitions = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009  pytest has no public word for it
    shared = [name for name, found in definitions.items() if found[-1].scope in ("module", "package", "class")]
    values = getattr(getattr(item, "callspec", None), "indices", {})
    fixtures = sorted(f"{name}{values.get(name, '')}" for name in shared)
    return Shared(
        item.nodeid, item.nodeid.partition("::")[0], frozenset(m.name for m in item.iter_markers()), tuple(fixtures)
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """The tiers, by what a test's module can start."""
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker("spark")
    if item.get_closest_marker("spark"):
        from tests.harness import spark_java  # it imports PySpark: only where a test's module did

        spark_java.prepare()
    known = vars(getattr(item, "module")).values()  # noqa: B009  pytest.Item does not promise it
    if any(str(getattr(value, "__module__", "")).startswith(STARTERS) for value in known):
        item.add_marker("broker")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a worker: in the order and the groups that `distribution` says; all workers have to say the same."""
    worker_input: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker_input is None:
        return
    tests = [_shared(item) for item in items]
    tell_groups(Path(worker_input["groups"]), {test.name: group_of(test) for test in tests})
    items[:] = [items[number] for number in order(tests, worker_input.get("seconds", {}))]


def pytest_collection_finish() -> None:
    """No collection of garbage looks again at what was loaded by now, and no child that is forked copies its pages."""
    gc.collect()
    gc.freeze()


def _of_the_process() -> tuple[object, ...]:
    """What a command that serves sets for its whole process: a test that runs one in its own would set it for all."""
    ours = logging.getLogger("slipstream")
    handlers = tuple(signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT))
    return logging.root.level, ours.level, getattr(sys, "tracebacklimit", None), handlers


@pytest.fixture(autouse=True)
def producers_begin_at_the_first_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a test's own process: where their messages go is then the same in each run."""
    monkeypatch.setattr(chance, "below", lambda _limit: 0)


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """No test, and no process of one, writes into the folder that it is run from, or sets what is the worker's."""
    before = _of_the_process()
    yield
    assert _of_the_process() == before, "levels of logs, sys.tracebacklimit, handlers of signals"
    news = REPOSITORY.news()
    assert not news, f"since the last test {sorted(news)} came into the repository's folder, from some worker"


@pytest.fixture
def store_dir(tmp_path: Path) -> Path:
    """The root of a store that does not exist yet."""
    return tmp_path / "store"


@pytest.fixture
def region_dir() -> Iterator[Path]:
    """A directory in shared memory, removed afterwards."""
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="slipstream-test-", dir=parent))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Gives ports that were free a moment ago."""
    return local_broker.free_port
