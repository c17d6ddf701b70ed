"""Kills the master of a pair under load, promotes its slave, brings the old one back as a slave; again and again.

    python -m tests.crash.promotion [--rounds 20] [--seed 1] [--ledger docs/promotion.md]

Masters are SYNC_MASTER, and the pair has a name server. In every round each message that was ever answered with PUT_OK
must be in the new master's log, once; the old master must come back as a slave and have the same log. The time is that
from the kill to the first put that the new master took, the command `slipstream promote` typed at once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import click

from engine.errors import EngineError
from engine.monitoring.ha_status import ha_status
from engine.producer import Producer
from engine.protocol.ha.put_status import PutMessageStatus
from engine.shared_memory.cursors import BrokerCounters
from ipc.errors import IpcError
from store.errors import StoreError
from store.reading.extent import require_running, running
from store.reading.log_reader import open_log
from store.reading.summary import messages
from tests.harness.conditions import await_that
from tests.harness.killing import kill_broker
from tests.harness.served_names import Serving
from tools.common.local_broker import LocalBroker

MASTER, WRITER_FIRST = "the master", "the master's writer, then the master"
BOTH = "the master, then the slave as it is promoted"
CUT_OFF = "the master, cut off from its slave just before"
KINDS = (MASTER, CUT_OFF, BOTH, WRITER_FIRST)
SEGMENT_BYTES = 1 << 20
LOADS, ACKNOWLEDGED_MIN = 4, 200
CUT_OFF_SECONDS = 0.2
STEP_SECONDS = 0.5  # of the histogram


@dataclass
class Load:
    """Producers on one master, until it is gone; what they were told is in the log."""

    store: Path
    name: str
    acknowledged: list[bytes] = field(default_factory=list)

    def start(self) -> None:
        """Begin to put."""
        self._threads = [threading.Thread(target=self._put, args=(number,), daemon=True) for number in range(LOADS)]
        for thread in self._threads:
            thread.start()

    def _put(self, number: int) -> None:
        count = 0
        try:
            with Producer(str(self.store), timeout=60.0) as producer:
                while True:
                    body = f"{self.name} {number} {count}".encode()
                    if producer.send(f"topic{number}", body, timeout=30).status is PutMessageStatus.PUT_OK:
                        self.acknowledged.append(body)
                    count += 1
        except (EngineError, IpcError, StoreError, OSError):
            return  # the broker has gone, for one that begins late before it came

    def end(self) -> None:
        """Once the broker is gone."""
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "a producer waits for a broker that is gone"


@dataclass(frozen=True)
class Round:
    """One change of the master."""

    kind: str
    seconds: float
    acknowledged: int
    cut_records: int


class Drill:
    """The pair and its name server; `seed` chooses what is killed when."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory, self._dice = directory, random.Random(seed)
        self._names = Serving()
        self.acknowledged: list[bytes] = []
        self.rounds: list[Round] = []
        self._master, self._slave = self._broker("a"), self._broker("b")

    def _broker(self, name: str) -> LocalBroker:
        role = {"brokerRole": "SYNC_MASTER"} if name == "a" else {"brokerRole": "SLAVE", "brokerId": 1}
        broker = LocalBroker(
            self._directory / name,
            brokerName="pair",
            mappedFileSizeCommitLog=SEGMENT_BYTES,
            inSyncReplicas=2,
            haReconnectInterval=100,
            slaveTimeout=20_000,
            promotedRole="SYNC_MASTER",
            **role,
            namesrvAddr=f"127.0.0.1:{self._names.port}",
        )
        return broker.__enter__()

    def close(self) -> None:
        """Stop all of it."""
        for broker in (self._master, self._slave):
            broker.stop()
        self._names.stop()

    def turn(self, kind: str) -> Round:
        """One round. Raises AssertionError where something is lost."""
        master, slave = self._master, self._slave
        await_that(lambda: ha_status(master.store).in_sync_slaves >= 1, "the slave is in sync")
        load = Load(master.store, f"round {len(self.rounds)}")
        load.start()
        await_that(lambda: len(load.acknowledged) >= ACKNOWLEDGED_MIN, "puts are acknowledged")
        threading.Event().wait(self._dice.uniform(0, 0.5))
        began = time.monotonic()
        if kind == WRITER_FIRST:
            _signal(master, "writer", signal.SIGKILL)
        elif kind == CUT_OFF:
            _signal(master, "sender.", signal.SIGSTOP)
            threading.Event().wait(CUT_OFF_SECONDS)  # what is put now, nobody else has
        kill_broker(master)
        self._slave = slave = self._promoted(slave, is_killed=kind == BOTH)
        self._first_put(slave)
        seconds = time.monotonic() - began
        load.end()
        self.acknowledged += load.acknowledged
        self._check(slave.store)
        await_that(lambda: self._is_registered(slave), "the name server calls it the master")
        cut = _rewound(master.store, slave)
        again = self._broker(master.store.parent.name)
        assert _role(again) == "SLAVE", again.log.read_text()
        await_that(lambda: _has_all_of(again.store, slave.store), "the old master has the new one's log")
        self._master, self._slave = slave, again
        self.rounds.append(Round(kind, seconds, len(load.acknowledged), cut))
        return self.rounds[-1]

    def _promoted(self, slave: LocalBroker, *, is_killed: bool) -> LocalBroker:
        """The slave once it is the master; with `is_killed` its broker dies on the way, and is started again."""
        command = subprocess.Popen(
            [sys.executable, "-m", "tools.cli", "promote", str(slave.store), "--timeout", "280"],
            stdout=subprocess.PIPE,
            text=True,
            stderr=subprocess.STDOUT,
        )
        if is_killed:
            threading.Event().wait(self._dice.uniform(0.5, 2.5))  # from the command's own start to its end
            kill_broker(slave)
        said = command.communicate(timeout=300)[0]
        if not is_killed:
            assert command.returncode == 0, said + slave.log.read_text()[-2000:]
            return slave
        slave = self._broker(slave.store.parent.name)
        if _role(slave) == "SLAVE":  # killed before its epoch began
            return self._promoted(slave, is_killed=False)
        return slave

    def _is_registered(self, master: LocalBroker) -> bool:
        """Whether an old master that starts now finds this one."""
        brokers = list(self._names.state.routes.brokers.values())
        return any(each.addresses.get(0) == f"127.0.0.1:{master.port}" for each in brokers)

    def _first_put(self, master: LocalBroker) -> None:
        """It takes messages; with no slave yet, none is acknowledged by two."""
        with Producer(str(master.store), timeout=60.0) as producer:
            status = producer.send("first", b"of round %d" % len(self.rounds)).status
        assert status in (PutMessageStatus.PUT_OK, PutMessageStatus.SLAVE_NOT_AVAILABLE), status

    def _check(self, store: Path) -> None:
        """Every acknowledged message is there once."""
        there = Counter(bytes(message.body) for message in messages(open_log(store)))
        missing = [body for body in self.acknowledged if body not in there]
        assert not missing, f"{len(missing)} of {len(self.acknowledged)} acknowledged messages are lost: {missing[:3]}"
        assert max(there.values()) == 1, f"repeated: {there.most_common(3)}"


def _signal(broker: LocalBroker, role: str, number: int) -> None:
    """To the processes whose names begin so."""
    counters = BrokerCounters.attach(require_running(broker.store).region_directory)
    try:
        for name, pid in counters.pids.items():
            if name.startswith(role) and (runs := pid.read()):
                with suppress(ProcessLookupError):
                    os.kill(runs, number)
    finally:
        counters.region.close()


def _role(broker: LocalBroker) -> str:
    return str(require_running(broker.store).settings["brokerRole"])


def _has_all_of(slave: Path, master: Path) -> bool:
    try:
        return running(slave) is not None and open_log(slave).max_offset == open_log(master).max_offset
    except StoreError:
        return False


def _rewound(store: Path, master: LocalBroker) -> int:
    """Give up what only the dead master had; how many records that were."""
    arguments = ["replica", "rewind", str(store), "--with", f"127.0.0.1:{master.port}", "--json"]
    ran = subprocess.run(
        [sys.executable, "-m", "tools.cli", *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return int(json.loads(ran.stdout)["records"])


def ledger(drill: Drill, seed: int) -> str:
    """The page of docs/."""
    rounds = drill.rounds
    lines = [
        "# Promotions under load",
        "",
        "Written by `make promotion`. A SYNC_MASTER, its slave and a name server run on one host. Four producers put",
        "without pause while SIGKILL ends the master. `slipstream promote` is typed at once. The old master is"
        " rewound and comes back",
        "as a slave, so the roles are swapped in the next round.",
        "",
        f"{len(rounds)} rounds (seed {seed}), {len(drill.acknowledged):,} messages acknowledged (PUT_OK):"
        " **0 missing, 0 repeated** on every new master.",
        f"{sum(one.cut_records for one in rounds)} records that only the dead master had were cut and kept; none"
        " of them had been acknowledged.",
        "",
        "| killed | rounds | until the new master took a message: median | longest |",
        "|---|---|---|---|",
    ]
    for kind in KINDS:
        seconds = sorted(one.seconds for one in rounds if one.kind == kind)
        if seconds:
            lines.append(f"| {kind} | {len(seconds)} | {seconds[len(seconds) // 2]:.1f} s | {seconds[-1]:.1f} s |")
    lines += ["", "```"]
    steps = Counter(int(one.seconds / STEP_SECONDS) for one in rounds)
    for step in sorted(steps):
        lines.append(f"{step * STEP_SECONDS:4.1f} to {(step + 1) * STEP_SECONDS:4.1f} s  {'#' * steps[step]}")
    return "\n".join([*lines, "```"]) + "\n"


def run(directory: Path, rounds: int, seed: int, *, tell: bool = False) -> Drill:
    """So many rounds."""
    drill = Drill(directory, seed)
    try:
        for number in range(rounds):
            done = drill.turn(KINDS[number % len(KINDS)])
            if tell:
                print(f"round {number}: {done}", flush=True)
    finally:
        drill.close()
    return drill


@click.command()
@click.option("--rounds", default=20, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=1, show_default=True)
@click.option("--ledger", "page", type=click.Path(path_type=Path))
def main(rounds: int, seed: int, page: Path | None) -> None:
    """Kill, promote, count, and write the ledger."""
    with tempfile.TemporaryDirectory(prefix="slipstream-promotion-") as directory:
        drill = run(Path(directory), rounds, seed, tell=True)
    text = ledger(drill, seed)
    print(text)
    if page is not None:
        page.write_text(text)


if __name__ == "__main__":
    main()
