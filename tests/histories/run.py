"""A history: producers and consumers at a Slipstream broker, while processes are killed at seeded moments."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.shared_memory.cursors import BrokerCounters
from ipc.clock import wall_ms
from store.reading import extent
from tests.harness.conditions import await_that
from tests.histories.checker import KINDS, NUMBERS_A_THREAD, History, Offset
from tests.interop.clients import QUICK, REAL_OF, make_topics
from tests.interop.remoting import Client
from tests.interop.rocketmq import Addressed, RealClient
from tests.interop.sides import OurNameServer, OurSide, RealSide, Side

QUERY_CONSUMER_OFFSET, QUEUES = 14, 4
ROLES = ("front.0", "clients", "delay", "transactions", "dispatcher", "writer")
TARGETS = (*ROLES, "broker", "consumer", "producer")
EARLY = "early"  # said to a Python consumer: break the rule, acknowledge before the handling
PAUSES = "consumer paused", "broker paused"  # SIGSTOP, and SIGCONT behind it
GAP_SECONDS = 1.0, 3.0
PAUSE_SECONDS = 3.0
SETTLE_SECONDS = 300.0
CALM_TIMEOUT_MS = 60_000  # of a send where nothing is killed: on a busy machine each is answered, too
LOOK_SECONDS = 0.25
THREADS, PAUSE_US = 2, 3000
SETTINGS = {
    "transactionCheckInterval": 1000, "transactionTimeOut": 1000, "messageDelayLevel": "1s 2s 3s",
    "mappedFileSizeCommitLog": 16 << 20,
}  # fmt: skip


class Member(RealClient):
    """A JVM of the history."""

    main_class, heap = "History", "160m"

    def __init__(self, home: Path, names: Addressed, history: History, lock: threading.Lock, *words: str) -> None:
        super().__init__(home, names)
        self._words, self._history, self._lock = words, history, lock
        self.is_ready, self.is_quiet = threading.Event(), threading.Event()
        self.shares: list[int] = []

    def arguments(self) -> list[str]:
        """What it does, and where."""
        return [self._words[0], *super().arguments(), *self._words[1:]]

    def heard(self, line: str) -> None:
        """Something happened."""
        try:
            event = json.loads(line)
        except ValueError:
            return  # the half line of a killed one
        for word, is_so in (("ready", self.is_ready), ("quiet", self.is_quiet)):
            if event["e"] == word:
                is_so.set()
        if event["e"] == "shares":
            self.shares = event["of"]
        with self._lock:
            self._history.add(self.home.name, event)

    def be_patient(self) -> None:
        """Wait for each answer, and share queues quickly: where nothing is killed."""
        self.properties = [*QUICK, f"-Dhistory.timeout={CALM_TIMEOUT_MS}"]

    def stop_sending(self) -> None:
        """No more messages; it still says what becomes of its transactions."""
        self._type("enough")

    def thaw(self) -> None:
        """SIGCONT: what `freeze` stopped goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class PythonMember(Member):
    """A process with Slipstream's clients. `store` is that of the broker on this host which a consumer reads."""

    def __init__(self, *arguments: Any, store: Path | None) -> None:
        super().__init__(*arguments)
        if store is not None:
            self._name_server = str(store)
        self._patience: list[str] = []

    def command(self) -> list[str]:
        """What is run."""
        return ["env", *self._patience, sys.executable, "-m", "tests.histories.python_member"]

    def spawn(self, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
        """Start it where its modules are."""
        return super().spawn(*arguments, **streams, cwd=Path.cwd())

    def be_patient(self) -> None:
        """Wait for each answer: where nothing is killed."""
        self._patience = [f"HISTORY_TIMEOUT_MS={CALM_TIMEOUT_MS}"]


def member_of(kind: str, store: Path | None, *arguments: Any) -> Member:
    """A member of that kind, which is not started yet."""
    return Member(*arguments) if kind == "java" else PythonMember(*arguments, store=store)


def are_shared(shares: list[list[int]]) -> bool:
    """Whether each member has a share of each kind's queues, and all of them together have each queue once."""
    return all(map(all, shares)) and [sum(of) for of in zip(*shares, strict=False)] == [QUEUES] * len(KINDS)


@dataclass
class Play:
    """One history. `targets` are killed in turn, one after the other. The kind may be a real broker's, as a reference:
    of one no role can be killed alone.

    `cast` says what each consumer is, `sender` what the producer is: "java", "wire", or "local", which reads the store.
    """

    home: Path
    kind: str
    seed: int
    targets: tuple[str, ...]
    seconds: float = 6.0  # of load before the first kill, and after the last
    history: History = field(default_factory=History)
    cast: tuple[str, ...] = ("java", "java")
    sender: str = "java"
    words: tuple[str, ...] = ()  # further arguments of consumers
    settle_seconds: float = SETTLE_SECONDS

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._numbers = 0
        self._members: dict[str, Member] = {}
        self._broker_lives = 0

    def run(self) -> History:
        """All of it: load, kills, the rest of what is due."""
        version = REAL_OF.get(self.kind, self.kind)
        with ExitStack() as stack:
            self._names = stack.enter_context(OurNameServer(self.home / "names", version))
            settings = {"brokerName": "broker-a", "namesrvAddr": self._names.address, **SETTINGS}
            if self.kind in REAL_OF:
                self._side: Side = OurSide(self.home / "broker", version, ringSizeInBytes=1 << 24, **settings)
            else:
                self._side = RealSide(self.home / "broker", version, **settings)
            stack.callback(self._side.stop)
            self._side.start()
            make_topics(self._side.port, self._names.address, [f"History-{kind}" for kind in KINDS])
            stack.callback(self._end_members)
            consumers = [self._begin(f"consumer-{number}") for number in range(len(self.cast))]
            if not self.targets:  # who gives a queue away may be given its messages again
                await_that(lambda: are_shared([one.shares for one in consumers]), "each has its share")
            self._begin("producer")
            looking = threading.Thread(target=self._look_at_offsets)
            looking.start()
            try:
                self._under_load()
            finally:
                self._ended.set()
                looking.join()
        return self.history

    def _under_load(self) -> None:
        pause = threading.Event()
        pause.wait(self.seconds)
        for target in self.targets:
            pause.wait(self._dice.uniform(*GAP_SECONDS))
            self._kill(target)
        pause.wait(self.seconds)
        self._stop_producing()
        wanted = f"all that is due is seen; kills: {self.history.kills}"
        try:
            await_that(lambda: not self._missing(), wanted, self.settle_seconds, LOOK_SECONDS)
        except AssertionError:
            return  # the checker says what is missing
        pause.wait(1.0)  # whatever comes now is a repetition

    def _missing(self) -> bool:
        with self._lock:
            return bool(self.history.missing())

    def _begin(self, name: str) -> Member:
        role = name.partition("-")[0]
        words: tuple[str, ...] = ("consume", name, *self.words)
        if role == "producer":
            words = "produce", str(self._numbers), str(THREADS), str(PAUSE_US)
            self._numbers += NUMBERS_A_THREAD * THREADS * len(KINDS)
        life = sum(each.startswith(name) for each in os.listdir(self.home))
        kind = self.sender if role == "producer" else self.cast[int(name.partition("-")[2])]
        store = self._side.store if kind == "local" else None
        member = member_of(kind, store, self.home / f"{name}-{life}", self._names, self.history, self._lock, *words)
        if not self.targets:
            member.be_patient()
        self._members[name] = member
        member.__enter__()
        await_that(member.is_ready.is_set, f"{name} is ready")
        return member

    def _kill(self, target: str) -> None:
        """SIGKILL, and whoever has to come back is back afterwards."""
        self.history.kills.append(target)
        if target == "broker":
            self._side.kill()
            self._broker_lives += 1
            self.history.deaths.append(wall_ms())
            self._side.start()
        elif target in ("consumer", "producer"):
            name = target if target == "producer" else self._consumer()
            member = self._members[name]
            member.kill()
            member.stop()
            with self._lock:
                self.history.member_ended(member.home.name)
            self._begin(name)
        elif target in PAUSES:
            paused: Any = self._side if target == "broker paused" else self._members[self._consumer()]
            paused.freeze()
            threading.Event().wait(PAUSE_SECONDS)
            paused.thaw()
        else:
            self._kill_role(target)

    def _consumer(self) -> str:
        return f"consumer-{self._dice.randrange(len(self.cast))}"

    def _kill_role(self, role: str) -> None:
        counters = BrokerCounters.attach(extent.require_running(self._side.store).region_directory)
        try:
            pid = await_that(counters.pids[role].read, f"{role} runs")
            os.kill(pid, signal.SIGKILL)
            await_that(lambda: counters.pids[role].read() not in (0, pid), f"{role} is back")
        finally:
            counters.region.close()

    def _stop_producing(self) -> None:
        producer = self._members["producer"]
        producer.stop_sending()
        await_that(producer.is_quiet.is_set, "the producer has its last answers")

    def _end_members(self) -> None:
        for member in self._members.values():
            member.stop()

    def _look_at_offsets(self) -> None:
        """How far the groups are, again and again."""
        while not self._ended.wait(LOOK_SECONDS):
            try:
                with Client(self._side.port) as client:
                    life = self._broker_lives  # of the broker that it is connected with
                    for kind in KINDS:
                        self._look_at(client, kind, life)
            except (OSError, RuntimeError):
                continue  # killed just now

    def _look_at(self, client: Client, kind: str, life: int) -> None:
        for queue in range(QUEUES):
            fields = {"consumerGroup": f"History-{kind}", "topic": f"History-{kind}", "queueId": queue}
            answer = client.request(QUERY_CONSUMER_OFFSET, fields)
            if answer["code"] == 0:
                offset = int(answer["extFields"]["offset"])
                after = len(self.history.kills)
                self.history.offsets.append(Offset(f"History-{kind}", queue, offset, life, after))
