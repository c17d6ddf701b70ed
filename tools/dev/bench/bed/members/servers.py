"""Servers that are at hand for a comparison of consumers, and the consumers that read from them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import click

from ipc.module_names import named
from tools.common.local_broker import LocalBroker, free_port
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.kafka_broker import KafkaBroker
from tools.dev.bench.bed.members.redis_server import redis_server
from tools.dev.bench.bed.rocketmq import RealBroker, RealNameServer, java_program

JAVA, PUSH_MEMBER = "java", Path(__file__).with_name("PushMember.java")
REAL = "5"
PATIENT: dict[str, Any] = {"brokerFastFailureEnable": "false"}  # a backlog is sent as fast as it goes
MODULES = {
    "slipstream-batches": "pyarrow", "confluent-kafka": "confluent_kafka", "kafka-python": "kafka", "redis-py": "redis"
}  # fmt: skip


class Server(NamedTuple):
    """Where messages lie, and the kind of the sender that brings them there."""

    sender: str
    address: str


class Subject(NamedTuple):
    """A consumer: what reads, of which server, and from which address."""

    kind: str
    server: str
    address: str
    one_by_one: bool = False

    def command(self, of: Asked, topic: str, group: str, **options: float) -> list[str]:
        """Return the command of one member, which joins `topic`."""
        if self.kind == JAVA:
            assert of.rocketmq is not None
            values = [int(options.get("messages", 0)), int(options.get("warm", 0)), options.get("seconds", 0)]
            values.append(int(options.get("timed", 0)))
            return java_program(of.rocketmq, REAL, of.scratch, PUSH_MEMBER, self.address, topic, group, *values)
        flags = ["--one-by-one"] * self.one_by_one + ["--timed"] * bool(options.pop("timed", 0))
        chosen = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        program = named("tools.dev.bench.bed.members.consume")
        return [sys.executable, "-m", program, self.kind, self.address, topic, group, *flags, *chosen]


class Bed(NamedTuple):
    """Servers and subjects by name."""

    servers: dict[str, Server]
    subjects: dict[str, Subject]

    @property
    def stores(self) -> list[str]:
        """Return the servers that subjects read: of Slipstream, whose broker and store are one, the store."""
        read = {one.server for one in self.subjects.values()}
        return sorted({"slipstream, local" if server == "slipstream" else server for server in read})

    def sender(self, server: str, topic: str, **options: int) -> list[str]:
        """Return the command of a program that sends to a server's topic."""
        chosen = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        program = named("tools.dev.bench.bed.members.send")
        return [sys.executable, "-m", program, *self.servers[server], topic, *chosen]


@contextmanager
def at_hand(of: Asked, home: Path) -> Iterator[Bed]:
    """Run a Slipstream broker, and each peer that is there; name those that are not."""
    bed = Bed({}, {})
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, home)
        _add_slipstream(stack, bed, of.rocketmq, home)
        if of.rocketmq is not None:
            _add_rocketmq(stack, bed, of.rocketmq, home)
        else:
            _skip("RocketMQ and Java's push consumer", "--rocketmq names no folder")
        if of.kafka is not None:
            broker = stack.enter_context(KafkaBroker(of.kafka / "broker", home / "kafka"))
            bed.servers["kafka"] = Server("kafka", broker.address)
            for kind in ("confluent-kafka", "kafka-python"):
                _add_both(bed, kind, "kafka", broker.address)
        else:
            _skip("Kafka", "--kafka names no folder")
        if shutil.which("redis-server"):
            address = stack.enter_context(redis_server(home / "redis"))
            bed.servers["redis"] = Server("redis", address)
            if _is_there("redis-py"):
                bed.subjects["redis-py"] = Subject("redis-py", "redis", address)
        else:
            _skip("Redis", "there is no redis-server")
        yield bed


def _add_slipstream(stack: ExitStack, bed: Bed, rocketmq: Path | None, home: Path) -> None:
    names = _names(stack, rocketmq, home / "our-names") if rocketmq is not None else ""
    ours = stack.enter_context(LocalBroker(home / "ours", **PATIENT, **({"namesrvAddr": names} if names else {})))
    store, address = str(ours.store), f"127.0.0.1:{ours.port}"
    bed.servers.update({"slipstream, local": Server("local", store), "slipstream": Server("remote", address)})
    for server, at in (("slipstream, local", store), ("slipstream", address)):
        _add_both(bed, "slipstream", server, at, name=server)
        if _is_there("slipstream-batches"):
            bed.subjects[f"{server}, batches"] = Subject("slipstream-batches", server, at)
    if names:
        bed.subjects["Java's push consumer"] = Subject(JAVA, "slipstream", names)


def _add_rocketmq(stack: ExitStack, bed: Bed, folder: Path, home: Path) -> None:
    names = _names(stack, folder, home / "their-names")
    real = stack.enter_context(RealBroker(folder, REAL, home / "theirs", free_port(), namesrvAddr=names, **PATIENT))
    bed.servers["rocketmq 5"] = Server("remote", f"127.0.0.1:{real.port}")
    bed.subjects["slipstream at rocketmq 5"] = Subject("slipstream", "rocketmq 5", f"127.0.0.1:{real.port}")
    bed.subjects["Java's push consumer at rocketmq 5"] = Subject(JAVA, "rocketmq 5", names)


def _names(stack: ExitStack, folder: Path, home: Path) -> str:
    """A name server of one broker alone: Java's consumer has no other way to a broker, and takes all of a topic."""
    return f"127.0.0.1:{stack.enter_context(RealNameServer(folder, REAL, home, free_port())).port}"


def _add_both(bed: Bed, kind: str, server: str, address: str, name: str = "") -> None:
    """A consumer by batches, and message by message."""
    if _is_there(kind):
        bed.subjects[name or kind] = Subject(kind, server, address)
        bed.subjects[f"{name or kind}, one by one"] = Subject(kind, server, address, one_by_one=True)


def _is_there(kind: str) -> bool:
    is_there = kind not in MODULES or find_spec(MODULES[kind]) is not None
    if not is_there:
        _skip(kind, f"the module {MODULES[kind]} is not installed")
    return is_there


def _skip(name: str, why: str) -> None:
    click.echo(f"{name} is skipped: {why}", err=True)
