"""Every pairing of our broker with RocketMQ's: one cell is a name server, a master, a slave, a load, and kills.

    python -m tests.interop.matrix CELL OUT.json

runs one cell and writes down what came of it; `tests.interop.__main__` runs them all and makes the table.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.producer import Producer
from store.message.record import Kind, Message, decode, inspect
from store.tables import json_files
from store.verify.verification import Verification
from tests.harness import conditions
from tests.harness.audit import assert_queue_offsets_dense, messages_of
from tests.interop.loads import OK, QUEUES, TOPIC, UNKNOWN, JavaLoad, OurLoad, await_outcomes, body_of
from tests.interop.remoting import Client
from tests.interop.rocketmq import NameServer
from tests.interop.sides import (
    TABLES,
    OurNameServer,
    OurSide,
    RealSide,
    Side,
    end_of,
    registered,
    table_of,
)

SEGMENT = 256 * 1024
OURS = ("ours 4.9", "ours 5")
THEIRS = ("4.9.7", "5.3.3")
MESSAGES_A_PHASE = 400
SYNC_SECONDS = 300  # a slave of 5.x asks for tables 60 s after its start, and then every 60 s, unless it is told to
ASKED_EACH_SECONDS = 0.1  # a question costs those who are asked a connection and an answer of a kilobyte
EARLY_OFFSETS, LATE_OFFSETS = {"readers": 10}, {"readers": 50, "late-readers": 20}
CREATE_TOPIC, DELETE_TOPIC, CREATE_GROUP, SET_OFFSET = 17, 215, 200, 15


def await_that(condition: Callable[[], Any], what: str, seconds: float = conditions.SECONDS) -> Any:
    """Ask again and again, at a pace that brokers under load do not feel."""
    return conditions.await_that(condition, what, seconds, ASKED_EACH_SECONDS)


@dataclass(frozen=True, slots=True)
class Cell:
    """Who is what: "ours 4.9" and "ours 5" are our broker with `compat` 4.9 and 5, else RocketMQ's version."""

    master: str
    slave: str
    names: str  # "ours" or "real"
    mode: str  # "async" or "sync"

    @property
    def name(self) -> str:
        """For a file, a test and the command line."""
        return "-".join([self.master, self.slave, self.names, self.mode]).replace(" ", "_")

    @property
    def version(self) -> str:
        """Whose line the name server is of: the real broker's; of two the newer one's."""
        return max(side.removeprefix("ours ").replace("4.9.7", "4.9") for side in (self.master, self.slave))[0]

    @property
    def is_mixed(self) -> bool:
        """Whether the brokers are of different lines."""
        return len({side.removeprefix("ours ")[0] for side in (self.master, self.slave)}) > 1

    @property
    def names_version(self) -> str:
        """The version of the real name server."""
        return THEIRS[1] if self.version == "5" else THEIRS[0]

    @property
    def versions_needed(self) -> set[str]:
        """What of RocketMQ has to be here."""
        real = {side for side in (self.master, self.slave) if side in THEIRS}
        return real | ({self.names_version} if self.names == "real" else set())


def cells() -> list[Cell]:
    """The whole matrix; where neither side is ours, the row is the reference (and our name server's test)."""
    sides = [
        *((ours, ours) for ours in OURS),
        *zip(OURS, THEIRS, strict=True),
        *zip(THEIRS, OURS, strict=True),
        *((master, slave) for master in THEIRS for slave in THEIRS),
    ]
    return [Cell(*each, names, mode) for each in sides for names in ("ours", "real") for mode in ("async", "sync")]


def cell_named(name: str) -> Cell:
    """The cell of that name."""
    return next(cell for cell in cells() if cell.name == name)


@dataclass
class Result:
    """A line of the table."""

    cell: str
    answered: int = 0
    not_replicated: int = 0  # stored, and the producer was told that no slave has it
    unanswered: int = 0
    segments: int = 0
    log_bytes: int = 0
    seconds: float = 0.0
    error: str = ""
    phases: dict[str, float] = field(default_factory=dict)


class Run:
    """One cell. `in_own_time`: the slave asks for its master's tables when its timer says so, not when it is told."""

    def __init__(self, cell: Cell, home: Path, *, in_own_time: bool = False) -> None:
        self.outcomes: list[str] = []
        self.tables: dict[str, list[dict[Any, Any]]] = {}  # of the master and the slave, as looked at last
        self.in_own_time = in_own_time
        self.cell, self.home, self.result = cell, home, Result(cell.name)
        self._begun = self._last = time.monotonic()

    def run(self) -> Result:
        """All of it; raises where something is not as it should be."""
        with ExitStack() as stack:
            if self.cell.names == "ours":
                self.names: Any = stack.enter_context(OurNameServer(self.home / "names", self.cell.names_version))
            else:
                self.names = stack.enter_context(NameServer(self.home / "names", self.cell.names_version))
            self.master = self._side("master", self.cell.master)
            self.slave = self._side("slave", self.cell.slave)
            stack.callback(self.slave.stop)
            stack.callback(self.master.stop)
            self._consumed(EARLY_OFFSETS, running=False)
            self.master.start()
            self.slave.start()
            self._early_tables()
            self._first_message()
            self._phase("start")
            self._under_load(stack)
            self._await_equal()
            self.slave.stop()
            self.master.stop()
            self._phase("stop")
            self.compare()
        self.result.seconds = time.monotonic() - self._begun
        return self.result

    def _phase(self, name: str) -> None:
        now = time.monotonic()
        self.result.phases[name], self._last = now - self._last, now

    def _side(self, role: str, kind: str) -> Side:
        settings: dict[str, Any] = {
            "mappedFileSizeCommitLog": SEGMENT, "namesrvAddr": self.names.address, "registerNameServerPeriod": 10_000,
            "slaveTimeout": 1000,  # how long each message waits while no slave is there
        }  # fmt: skip
        if role == "slave":
            settings |= {"brokerRole": "SLAVE", "brokerId": 1}
        else:
            settings |= {"brokerRole": f"{self.cell.mode.upper()}_MASTER", "brokerId": 0}
            if self.cell.mode == "sync" and kind == "5.3.3":
                settings |= {"inSyncReplicas": 2, "totalReplicas": 2}  # without it 5.x waits for nobody
        if kind in OURS:
            return OurSide(self.home / role, kind.removeprefix("ours "), **settings)
        return RealSide(self.home / role, kind, brokerName="broker-a", **settings)

    # what a master's clients and administrators do

    def _topic(self, topic: str, queues: int) -> None:
        with Client(self.master.port) as client:
            fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues,
                      "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}  # fmt: skip
            self._done(client.request(CREATE_TOPIC, fields))

    def _group(self, group: str, retries: int) -> None:
        with Client(self.master.port) as client:
            body = json.dumps({"groupName": group, "retryMaxTimes": retries}).encode()
            self._done(client.request(CREATE_GROUP, body=body))

    def _consumed(self, offsets: dict[str, int], *, running: bool) -> None:
        """Offsets of groups: by clients of a running broker; ours serves no consumers, it takes over what it finds."""
        is_ours = self.cell.master in OURS
        if is_ours is running:
            return
        if is_ours:
            path, tables = self.master.store / "config" / TABLES["offsets"][0], table_of(self.master.store, "offsets")
            for group, first in offsets.items():
                tables[f"{TOPIC}@{group}"] = {queue: first + queue for queue in range(QUEUES)}
            path.parent.mkdir(parents=True, exist_ok=True)
            json_files.write(path, {"offsetTable": tables})
            return
        with Client(self.master.port) as client:
            for group, first in offsets.items():
                for queue in range(QUEUES):
                    fields = {"consumerGroup": group, "topic": TOPIC, "queueId": queue, "commitOffset": first + queue}
                    self._done(client.request(SET_OFFSET, fields))

    @staticmethod
    def _done(answer: dict[str, Any]) -> None:
        assert answer["code"] == 0, answer

    def _early_tables(self) -> None:
        self._topic(TOPIC, QUEUES)
        self._topic("Short", 1)
        self._group("readers", 5)
        self._consumed(EARLY_OFFSETS, running=True)

    def _first_message(self) -> None:
        """A new slave begins with its master's last segment: it has to be there before there is a second one."""
        if self.cell.master in OURS:
            with Producer(str(self.master.store), timeout=60.0) as producer:
                producer.send("First", b"the first message of all")
        else:
            with Client(self.master.port) as client:
                client.send("First", 0, b"the first message of all")
        self._caught_up()

    def _tables_while_the_slave_is_away(self) -> None:
        self._topic("Late", 6)
        self._group("late-readers", 3)
        self._group("readers", 7)
        with Client(self.master.port) as client:
            self._done(client.request(DELETE_TOPIC, {"topic": "Short"}))

    # the load, and the kills

    def _under_load(self, stack: ExitStack) -> None:
        await_that(lambda: set(registered(self.names.address)) == {0, 1}, "both brokers are registered")
        if self.cell.master in OURS:
            load: OurLoad | JavaLoad = OurLoad(self.master.store)
        else:
            load = JavaLoad(self.home / "load", self.names)
        stack.callback(load.stop)
        self.outcomes = load.outcomes
        await_outcomes(load, MESSAGES_A_PHASE)
        self._caught_up()
        self._phase("load")
        self.slave.kill()
        self._tables_while_the_slave_is_away()
        await_outcomes(load, 3 if self.cell.mode == "sync" else MESSAGES_A_PHASE, only_ok=False)
        self.slave.start()
        await_outcomes(load, MESSAGES_A_PHASE)
        self._caught_up()
        self._phase("slave killed")
        self.master.kill()
        if self.cell.mode == "sync":
            self._assert_acknowledged_is_replicated(list(load.outcomes))
        self._consumed(LATE_OFFSETS, running=False)
        self.master.start()
        await_outcomes(load, MESSAGES_A_PHASE)
        self._consumed(LATE_OFFSETS, running=True)
        self._phase("master killed")
        load.stop()

    def _caught_up(self) -> None:
        """The slave has come to where the master is now."""
        end = await_that(lambda: max(0, end_of(self.master)), "the master says where its log ends")
        await_that(lambda: end_of(self.slave) >= end, f"the slave's log reaches {end}")

    def _assert_acknowledged_is_replicated(self, outcomes: list[str]) -> None:
        """The master is dead: whatever it acknowledged has to be in the slave's log, read as it lies there."""
        log = records_of(self.slave.store / "commitlog")
        there = {int(message.properties["n"]) for message in log if message.topic == TOPIC}
        missing = [n for n, outcome in enumerate(outcomes) if outcome == OK and n not in there]
        assert not missing, f"acknowledged, and not on the slave: {len(missing)}, from number {missing[0]} on"

    # the end

    def _await_equal(self) -> None:
        await_that(
            lambda: (
                registered(self.names.address)
                == {0: f"127.0.0.1:{self.master.port}", 1: f"127.0.0.1:{self.slave.port}"}
            ),
            "both brokers are listed by the name server",
        )
        self.end = await_that(lambda: max(0, end_of(self.master)), "the master says where its log ends")
        await_that(lambda: end_of(self.slave) == self.end, f"the slave's log ends at {self.end}")
        self._phase("catching up")

        wanted = {queue: LATE_OFFSETS["late-readers"] + queue for queue in range(QUEUES)}

        def has_all() -> bool:
            self.tables = {name: [table_of(side.store, name) for side in (self.master, self.slave)] for name in TABLES}
            offsets = self.tables["offsets"][1]
            return offsets.get(f"{TOPIC}@late-readers") == wanted and not any(map(self._differing, TABLES))

        if not self.in_own_time:
            self.slave.synchronize()
        try:
            await_that(has_all, "the slave's tables are the master's", SYNC_SECONDS)
        except AssertionError as error:
            found = [f"{name}: {different[:3]}" for name in TABLES if (different := self._differing(name))]
            raise AssertionError(f"{error}: {'; '.join(found)}") from error
        self._phase("tables")

    def _differing(self, name: str) -> list[tuple[Any, Any, Any]]:
        """What the two say otherwise: which entry, and what of it; 5.x knows fields that 4.9 cannot tell it."""
        master, slave = self.tables[name]
        found = []
        for key in sorted({*master, *slave}):
            ours, theirs = master.get(key), slave.get(key)
            if self.cell.is_mixed and isinstance(ours, dict) and isinstance(theirs, dict):
                both = ours.keys() & theirs.keys()
                ours, theirs = ({field: said[field] for field in both} for said in (ours, theirs))
            if ours != theirs:
                found.append((key, ours, theirs))
        return found

    def compare(self) -> None:
        """What the stopped brokers left behind is the same, and is what the load was told."""
        for name, equal in self.tables.items():  # a topic that the master made since then may have come, too
            for before, side in zip(equal, (self.master, self.slave), strict=True):
                after = table_of(side.store, name)
                lost = [key for key in before if after.get(key) != before[key]]
                assert not lost, f"{name}: {side.store} no longer says {lost}"
        topics = table_of(self.slave.store, "topics")
        assert TOPIC in topics and topics["Late"]["readQueueNums"] == 6 and "Short" not in topics
        groups = table_of(self.slave.store, "groups")
        assert (groups["readers"]["retryMaxTimes"], groups["late-readers"]["retryMaxTimes"]) == (7, 3)
        logs = [digests_of(side.store / "commitlog", self.end) for side in (self.master, self.slave)]
        different = [base for base, digest in logs[0].items() if logs[1].get(base) != digest]
        assert logs[0] == logs[1], f"the commit logs differ in the segments {different}"
        assert len(logs[0]) > 3, "several segments"
        self.result.segments, self.result.log_bytes = len(logs[0]), self.end
        for side in (self.master, self.slave):
            findings = list(Verification(side.store).findings())
            assert not findings, "\n".join(map(str, findings[:5]))
        self.account()

    def account(self) -> None:
        """Every message that was answered is there once, one without an answer once at most, and nothing else."""
        messages = [m for m in messages_of(self.slave.store, self.end) if m.topic == TOPIC]
        assert_queue_offsets_dense(messages)
        there = Counter(int(message.properties["n"]) for message in messages)
        for message in messages:
            assert bytes(message.body) == body_of(int(message.properties["n"]))
        for n, outcome in enumerate(self.outcomes):
            assert there[n] <= 1 if outcome == UNKNOWN else there[n] == 1, f"message {n} ({outcome}): {there[n]} times"
        assert max(there) < len(self.outcomes)
        counts = Counter(self.outcomes)
        self.result.answered, self.result.unanswered = counts[OK], counts[UNKNOWN]
        self.result.not_replicated = counts.total() - counts[OK] - counts[UNKNOWN]
        if self.cell.mode == "async":
            assert not self.result.not_replicated, counts


def records_of(commit_log: Path) -> list[Message]:
    """The messages of a log that somebody still has open: up to where no whole record lies."""
    found: list[Message] = []
    for path in sorted(commit_log.glob("0*")):
        view, position, base = path.read_bytes(), 0, int(path.name)
        while position < len(view):
            there = inspect(view, position, base + position, check_body_crc=True)
            if there.kind is Kind.BLANK:
                break
            if there.kind is not Kind.MESSAGE:
                return found
            found.append(decode(view, position))
            position += there.size
    return found


def digests_of(commit_log: Path, end: int) -> dict[int, str]:
    """SHA-256 of every segment's bytes below `end`; what lies behind is not compared."""
    files = {int(path.name): path for path in sorted(commit_log.glob("0*"))}
    return {
        base: hashlib.sha256(path.read_bytes()[: max(0, end - base)]).hexdigest()
        for base, path in files.items()
        if base < end
    }


def main(name: str, out: Path) -> int:
    """One cell of `make interop`, in a directory of its own that is kept where it failed."""
    home = Path(tempfile.mkdtemp(prefix=f"cell-{name}-"))
    run = Run(cell_named(name), home, in_own_time=True)
    try:
        run.run()
    except Exception as error:
        run.result.error = f"{type(error).__name__}: {error}"
        print(f"{name}: kept: {home}", file=sys.stderr)
        raise
    finally:
        out.write_text(json.dumps(asdict(run.result)) + "\n")
    shutil.rmtree(home)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
