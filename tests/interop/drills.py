"""Drills for a SYNC_MASTER and its slave, RocketMQ 5.3.3's and ours: forged acknowledgements, a master set back.

    python -m tests.interop.drills [--ledger docs/replication-drills.md]

What RocketMQ does is written down; what ours does is also checked: no message is acknowledged that the slave has not,
no byte of another history is taken.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from engine.monitoring.ha_status import ha_status
from engine.producer import Producer
from engine.protocol.ha.wire import FRAME_HEADER, FRAME_HEADER_BYTES, REPORT, CloseReason
from ipc.descriptors import await_readable
from store.reading import extent
from tests.harness.command_line import run
from tests.harness.conditions import await_that
from tests.harness.sockets import exactly
from tests.interop import rocketmq
from tests.interop.remoting import Client
from tests.interop.rocketmq import NameServer
from tests.interop.sides import OurSide, RealSide, end_of

VERSION = "5.3.3"
REAL, OURS = f"RocketMQ {VERSION}", "Slipstream"
TOPIC, PUTS, FILL, BODY_BYTES = "Drill", 3, 100, 1000
FAR_ABOVE = 1 << 40
SLAVE_TIMEOUT_MS = 500
HA_STATUS = 907
ANSWERS = {0: "PUT_OK", 10: "FLUSH_DISK_TIMEOUT", 11: "SLAVE_NOT_AVAILABLE", 12: "FLUSH_SLAVE_TIMEOUT"}
SETTINGS = {
    "inSyncReplicas": 2, "slaveTimeout": SLAVE_TIMEOUT_MS, "haSendHeartbeatInterval": 1000,
    "mappedFileSizeCommitLog": 1 << 20,
}  # fmt: skip


class Pair:
    """A master that waits for its one slave, and that slave; both of one kind."""

    def __init__(self, kind: str, home: Path) -> None:
        self.kind, self._home, self._stack, self._count = kind, home, ExitStack(), 0
        self.acknowledged: list[bytes] = []
        master: dict[str, Any] = {"brokerRole": "SYNC_MASTER", "brokerId": 0, **SETTINGS}
        slave: dict[str, Any] = {**master, "brokerRole": "SLAVE", "brokerId": 1}
        self.master: OurSide | RealSide
        self.slave: OurSide | RealSide
        if kind == OURS:
            self.master = OurSide(home / "master", VERSION, **master)
            slave |= {"haMasterAddress": f"127.0.0.1:{self.master.port + 1}", "haReconnectInterval": 100}
            self.slave = OurSide(home / "slave", VERSION, **slave)
        else:
            names = self._stack.enter_context(NameServer(home / "names", VERSION))
            common = {"namesrvAddr": names.address, "timerWheelEnable": "false"}
            self.master = RealSide(home / "master", VERSION, **master, **common)
            self.slave = RealSide(home / "slave", VERSION, **slave, **common)

    def __enter__(self) -> Pair:
        with contextlib.ExitStack() as begun:
            begun.push(self._stack.pop_all())
            for side in (self.master, self.slave):
                begun.callback(kill, side)
                side.start()
            self._stack = begun.pop_all()
        await_that(lambda: self.put(1) == ["PUT_OK"], "the slave is in step")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, at)

    def put(self, count: int, *, is_waited_for: bool = True) -> list[str]:
        """So many messages of one length, one after the other; what each was answered."""
        bodies = [
            f"{self.kind} {self._count + number:08d} ".encode().ljust(BODY_BYTES, b".") for number in range(count)
        ]
        self._count += count
        answers = self._put_ours(bodies, is_waited_for) if self.kind == OURS else self._put_real(bodies, is_waited_for)
        if is_waited_for:
            self.acknowledged += [body for body, said in zip(bodies, answers, strict=True) if said == "PUT_OK"]
        return answers

    def _put_ours(self, bodies: list[bytes], is_waited_for: bool) -> list[str]:
        with Producer(str(self.master.store), timeout=60.0) as producer:
            if is_waited_for:
                return [producer.send(TOPIC, body, queue_id=0).status.value for body in bodies]
            for body in bodies:
                producer.send(TOPIC, body, queue_id=0, wait=False)
            return []

    def _put_real(self, bodies: list[bytes], is_waited_for: bool) -> list[str]:
        properties = f"WAIT\x01{str(is_waited_for).lower()}\x02"
        with Client(self.master.port) as client:
            return [ANSWERS[client.put(TOPIC, 0, body, properties)["code"]] for body in bodies]

    def missing(self) -> int:
        """How many of the acknowledged messages the slave does not have."""
        log = log_of(self.slave)
        return sum(body not in log for body in self.acknowledged)

    def says(self) -> dict[str, Any]:
        """What the master says of its slaves (request 907)."""
        with Client(self.master.port) as client:
            said: dict[str, Any] = json.loads(client.exchange(HA_STATUS)[1])
        return said

    def reports(self) -> dict[int, int]:
        """What each connection is said to have acknowledged, by its port."""
        said = self.says().get("haConnectionInfo") or []
        return {int(one["addr"].rpartition(":")[2]): int(one["slaveAckOffset"]) for one in said}


def kill(side: OurSide | RealSide) -> None:
    """SIGKILL, also of one that is stopped; its shared memory goes with it, as nobody finds it without the store."""
    running = extent.running(side.store)
    side.kill()
    if running is not None:
        shutil.rmtree(running.region_directory, ignore_errors=True)


def log_of(side: OurSide | RealSide) -> bytes:
    """Its commit log's files, one behind the other."""
    return b"".join(path.read_bytes() for path in sorted((side.store / "commitlog").glob("0*")))


class Stranger:
    """Whoever connects to the master's HA port, and is no slave."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._socket = socket.create_connection(("127.0.0.1", pair.master.port + 1), timeout=120)
        self._port = self._socket.getsockname()[1]
        self._thread: threading.Thread | None = None

    def report(self, offset: int) -> None:
        """Say so, and wait until the master has taken it in, or hung up."""
        self._socket.sendall(REPORT.pack(offset))
        await_that(lambda: self._is_gone() or self._pair.reports().get(self._port) == offset, "a report is heard")

    def _is_gone(self) -> bool:
        """Whether the master has hung up; what it sends meanwhile is of no interest."""
        try:
            while await_readable(self._socket, timeout_ms=0):
                if not self._socket.recv(1 << 16):
                    return True
        except ConnectionError:
            return True
        return False

    def follow(self, offset: int) -> None:
        """Ask from there, and acknowledge all that comes from now on."""
        self._socket.sendall(REPORT.pack(offset))
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        await_that(lambda: self._port in self._pair.reports(), "a stranger is taken for a slave")

    def _follow(self) -> None:
        with contextlib.suppress(OSError):
            while len(header := exactly(self._socket, FRAME_HEADER_BYTES)) == FRAME_HEADER_BYTES:
                offset, size = FRAME_HEADER.unpack(header)
                exactly(self._socket, size)
                self._socket.sendall(REPORT.pack(offset + size))

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(20)
        self._socket.close()


@dataclass
class Outcome:
    """What one kind did in one drill: what was looked at, and what was seen."""

    seen: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def check(self, holds: bool, what: str) -> None:
        """What must be so with ours."""
        if not holds:
            self.wrong.append(what)


def in_words(answers: Sequence[str]) -> str:
    """How often which."""
    return ", ".join(f"{count} x {name}" for name, count in Counter(answers).items())


def forged(pair: Pair) -> Outcome:
    """Numbers of a stranger, while the only slave is stopped."""
    outcome = Outcome()
    seen = outcome.seen
    seen["slave in step"] = in_words(pair.put(PUTS))
    await_that(lambda: not pair.missing(), "the slave's log has them")
    pair.slave.freeze()
    seen["slave stopped (SIGSTOP), no stranger"] = in_words(pair.put(PUTS))
    end = end_of(pair.master)
    for name, beyond in {
        "a stranger reports the end + 2^40": [FAR_ABOVE],
        "a stranger reports the end, then the end + 2^40": [0, FAR_ABOVE],
    }.items():
        stranger = Stranger(pair)
        for distance in beyond:
            stranger.report(end + distance)
        seen[name] = in_words(pair.put(PUTS))
        outcome.check("PUT_OK" not in seen[name], "a forged number acknowledged a put")
        end, says = end_of(pair.master), pair.says().get("inSyncSlaveNums")
        highest = max(pair.reports().values(), default=0)
        stranger.close()
    seen["acknowledged by then, and not in the slave's log"] = str(lost := pair.missing())
    outcome.check(not lost, "acknowledged and not in the slave's log")
    if pair.kind == OURS:
        with contextlib.suppress(AssertionError):  # behind the hang-up; else it is said below
            await_that(lambda: all(map(ha_status(pair.master.store).ended.get, FORGED)), "they are counted")
        status = ha_status(pair.master.store)
        seen["what the master says of it"] = ", ".join(f"{reason} {status.ended.get(reason, 0)}" for reason in FORGED)
        outcome.check(all(status.ended.get(reason) for reason in FORGED), "a forged number was not counted")
    else:
        seen["what the master says of it"] = f"{says} in sync; its end {end:,}, acknowledged {highest:,}"
    stranger = Stranger(pair)
    stranger.follow(end)
    seen["a stranger reads what it is sent, acknowledges it and keeps nothing"] = in_words(pair.put(PUTS))
    stranger.close()
    return outcome


FORGED = (CloseReason.REQUEST_ABOVE_END.name, CloseReason.ACK_NOT_SENT.name)


def wiped(pair: Pair) -> Outcome:
    """The master's store is gone."""
    return _set_back(pair, lambda: shutil.rmtree(pair.master.store))


def tail_lost(pair: Pair) -> Outcome:
    """The master's store is what it was some messages before: what a power cut leaves of what was not flushed."""
    pair.put(FILL)
    store = pair.master.store
    shutil.copytree(store, before := store.with_name("before"))
    return _set_back(pair, lambda: (shutil.rmtree(store), before.rename(store)))


def _set_back(pair: Pair, change: Callable[[], object]) -> Outcome:
    """The master is killed, its store changed; it starts again on the same ports, and grows past what its slave has."""
    outcome = Outcome()
    seen = outcome.seen
    pair.put(FILL)
    kept = len(pair.acknowledged)
    await_that(lambda: end_of(pair.slave) == end_of(pair.master), "the slave has all of it")
    end = end_of(pair.slave)
    kill(pair.master)
    seen["acknowledged before the master is killed, and not in the slave's log"] = f"{pair.missing()} of {kept}"
    outcome.check(not pair.missing(), "the slave lacks what was acknowledged")
    before = log_of(pair.slave)[:end]
    change()
    pair.acknowledged.clear()
    pair.master.start()
    await_that(lambda: _is_back(pair, CloseReason.AHEAD), "the slave has come back to its master")
    seen["puts while the master is below the slave's end"] = in_words(pair.put(PUTS))
    seen["acknowledged by then, and not in the slave's log"] = f"{pair.missing()}"
    outcome.check(not pair.missing(), "acknowledged by a slave that has it not")
    seen["what is said then"] = _said(pair, CloseReason.AHEAD)
    while end_of(pair.master) <= end + SETTINGS["mappedFileSizeCommitLog"] // 8:
        pair.put(FILL, is_waited_for=False)
    await_that(lambda: _is_past(pair), "the slave has seen that its master is past its end")
    seen["puts once the master is past it"] = in_words(pair.put(PUTS))
    seen["what is said then, past it"] = _said(pair, CloseReason.DIVERGED)
    lost = pair.missing()
    seen["all acknowledged since, and not in the slave's log"] = f"{lost} of {len(pair.acknowledged)}"
    _compare(pair, before, outcome)
    outcome.check(not lost, "acknowledged and not in the slave's log")
    return outcome


def _is_back(pair: Pair, reason: CloseReason) -> bool:
    if pair.kind == OURS:
        client = ha_status(pair.slave.store).client
        return client is not None and client.reason == reason
    return bool(pair.reports())


def _is_past(pair: Pair) -> bool:
    if pair.kind == OURS:
        return _is_back(pair, CloseReason.DIVERGED)
    return end_of(pair.slave) == end_of(pair.master)


def _said(pair: Pair, reason: CloseReason) -> str:
    if pair.kind == OURS:
        await_that(lambda: _is_back(pair, reason), f"the slave says {reason.name}")
        return f"slave: {reason.name}; master: {ha_status(pair.master.store).in_sync_slaves} in sync"
    said = pair.says()
    acks = ", ".join(f"{ack:,}" for ack in pair.reports().values())
    end = said["masterCommitLogMaxOffset"]
    return f"master: {said['inSyncSlaveNums']} in sync, its end {end:,}, acknowledged {acks}"


def _compare(pair: Pair, before: bytes, outcome: Outcome) -> None:
    """Both logs, once both have ended."""
    ends = [end_of(side) for side in (pair.master, pair.slave)]
    master, slave = (log_of(side)[:end] for side, end in zip((pair.master, pair.slave), ends, strict=True))
    old = len(before)
    different = sum(one != other for one, other in zip(master[:old], slave, strict=False))
    seen = outcome.seen
    seen["the slave's log"] = f"{old:,} bytes as before, {len(slave) - old:,} of the new master's behind them"
    seen["bytes that differ from the master's"] = f"{different:,} of the first {old:,}"
    outcome.check(slave == before, "the slave took something of another history")
    seen["`slipstream log verify` of that log"] = _verified(pair.slave.store)


def _verified(store: Path) -> str:
    ran = run("log", "verify", store)
    if ran.exit_code == 0:
        return "clean"
    damage = re.search(r"at offset (\d+)", ran.stdout)
    return f"damage at offset {int(damage[1]):,}" if damage else ran.stdout[:100]


DRILLS = {"Forged acknowledgements": forged, "A wiped master": wiped, "A master that lost its log's tail": tail_lost}
HEAD = (
    f"# Drills of replication: {REAL}'s pair and ours\n\nWritten by `make drill`. A SYNC_MASTER with `inSyncReplicas=2`"
    f" and its one slave run on one host, with `slaveTimeout={SLAVE_TIMEOUT_MS}`;\nRocketMQ's also with its name"
    " server. Its producer says SEND_OK instead of PUT_OK. A stranger is a program that connects to the HA port"
    " and\nsends eight bytes or more. A wiped master was killed by SIGKILL, its store removed, and started again on"
    " the same ports.\nA master that lost its tail was killed by SIGKILL and started on a copy of its store that is"
    " some messages older, as after a power cut.\n"
)


def section(name: str, real: Outcome, ours: Outcome) -> str:
    """A table of both."""
    rows = [f"## {name}", "", f"| | {REAL} | {OURS} |", "|---|---|---|"]
    for what in dict.fromkeys([*real.seen, *ours.seen]):
        rows.append(f"| {what} | {real.seen.get(what, '-')} | {ours.seen.get(what, '-')} |")
    return "\n".join(rows) + "\n"


def run_drill(name: str, kind: str, home: Path) -> Outcome:
    """One drill for one kind, with a pair of its own."""
    with Pair(kind, home) as pair:
        return DRILLS[name](pair)


@click.command()
@click.option("--ledger", type=click.Path(path_type=Path))
def main(ledger: Path | None) -> None:
    """Run all drills with both kinds, and write the ledger; 1 where ours did what it must not."""
    if reason := rocketmq.missing(VERSION):
        print(f"make drill: {reason}", file=sys.stderr)
        sys.exit(2)
    page, wrong = HEAD, []
    with tempfile.TemporaryDirectory(prefix="slipstream-drill-") as directory:
        for number, name in enumerate(DRILLS):
            of_kind = {kind: run_drill(name, kind, Path(directory) / f"{number}-{kind[0]}") for kind in (OURS, REAL)}
            wrong += of_kind[OURS].wrong
            page += "\n" + section(name, of_kind[REAL], of_kind[OURS])
            print(section(name, of_kind[REAL], of_kind[OURS]), flush=True)
    if ledger is not None:
        ledger.write_text(page)
    if wrong:
        print(f"make drill: {'; '.join(wrong)}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
