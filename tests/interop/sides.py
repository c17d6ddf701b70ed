"""Brokers and name servers of either kind behind one face: started, killed, started again on the same port and store.

What is asked of a broker is asked over remoting, in the same words, whether it is ours or RocketMQ's.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

from engine.shared_memory.cursors import BrokerCounters
from store.errors import MalformedConfig
from store.reading import extent
from store.tables import fastjson, json_files
from tests.harness.conditions import await_that
from tests.harness.killing import kill_broker
from tests.interop.remoting import UPDATE_BROKER_CONFIG, Client
from tests.interop.rocketmq import PATIENCE, RocketMQBroker, is_five
from tools.common.local_broker import LocalBroker, free_port

CLI = [sys.executable, "-m", "tools.cli"]
SECONDS = 120
RUNTIME_INFO, CLUSTER_INFO = 28, 106
TABLES = {
    "topics": ("topics.json", "topicConfigTable"),
    "groups": ("subscriptionGroup.json", "subscriptionGroupTable"),
    "offsets": ("consumerOffset.json", "offsetTable"),
    "delay offsets": ("delayOffset.json", "offsetTable"),
}


class OurNameServer:
    """`slipstream namesrv`, ended by its own process id."""

    def __init__(self, directory: Path, version: str, *options: str) -> None:
        self.version = version
        compat = "5" if is_five(version) else "4.9"
        arguments = ["namesrv", "--host", "127.0.0.1", "--port", "0", "--compat", compat]
        arguments += ["--directory", str(directory), *options]
        self._process = subprocess.Popen(
            [*CLI, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().split("name server on ")[1].split(",")[0]

    def stop(self) -> None:
        """In order, or the test fails."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(SECONDS) == 0
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> OurNameServer:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()


class Side(Protocol):
    """A broker of either kind."""

    port: int
    store: Path

    def start(self) -> None:
        """Start it, on what its store holds; it serves and is registered afterwards."""

    def kill(self) -> None:
        """SIGKILL: all of its processes are gone afterwards."""

    def freeze(self) -> None:
        """SIGSTOP: it is there and says nothing; `kill` ends that, too."""

    def stop(self) -> None:
        """An ordinary end, which leaves everything on disk."""

    def synchronize(self) -> None:
        """Have a slave ask for its master's tables soon; by its timer one of 5.x does once a minute."""


class OurSide:
    """Our broker."""

    def __init__(self, home: Path, version: str, **settings: Any) -> None:
        self.port = free_port()
        self.store = home / "store"
        self._home = home
        self._settings = {
            "compat": "5" if is_five(version) else "4.9",
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "brokerName": "broker-a",
            "ringSizeInBytes": 1 << 20,
            "maxMessageSize": 65536,
            "haReconnectInterval": 1000,
            "mappedFileSizeConsumeQueue": 20_000,
            "maxHashSlotNum": 1000,
            "maxIndexNum": 4000,
            **PATIENCE,
            **settings,
        }
        self._running: LocalBroker | None = None

    def start(self) -> None:
        """A `slipstream broker` process; its front listens a moment after it says that it runs."""
        self._running = LocalBroker(self._home, **self._settings).__enter__()
        await_that(self._listens, "the front listens")

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """Its processes die with the supervisor."""
        assert self._running is not None
        kill_broker(self._running)

    def freeze(self) -> None:
        """Its processes, the supervisor first, so that nobody begins one anew."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """All of them go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._running is not None
        counters = BrokerCounters.attach(extent.require_running(self.store).region_directory)
        for pid in (self._running.process.pid, *(word.read() for word in counters.pids.values())):
            if pid:
                with contextlib.suppress(ProcessLookupError):  # a sender that has ended meanwhile
                    os.kill(pid, number)

    def stop(self) -> None:
        """SIGTERM."""
        if self._running is not None:
            self._running.stop()

    def synchronize(self) -> None:
        """Its remoting process is killed: the next one asks 3 s after its start."""
        counters = BrokerCounters.attach(extent.require_running(self.store).region_directory)
        os.kill(await_that(counters.pids["clients"].read, "it runs"), signal.SIGKILL)  # 0 would be all of us


class RealSide:
    """RocketMQ's broker."""

    def __init__(self, home: Path, version: str, **settings: Any) -> None:
        self.port = free_port()
        self.store = home / "store"
        self._home, self._version = home, version
        five = {"timerWheelEnable": "true"} if is_five(version) else {}  # 5.x cannot delete a topic without it
        self._settings = {"listenPort": self.port, **five, **settings}
        self._running: RocketMQBroker | None = None

    def start(self) -> None:
        """A JVM; 5.x would register its topics later only, a slave finds its master by registering."""
        self._running = RocketMQBroker(self._home, self._version, **self._settings).__enter__()
        with Client(self.port) as client:
            client.request(UPDATE_BROKER_CONFIG, body=b"brokerPermission=6")

    def kill(self) -> None:
        """SIGKILL of the JVM."""
        assert self._running is not None
        self._running.kill()

    def freeze(self) -> None:
        """SIGSTOP of the JVM."""
        assert self._running is not None
        self._running.freeze()

    def stop(self) -> None:
        """SIGTERM."""
        if self._running is not None:
            self._running.stop()

    def synchronize(self) -> None:
        """It does what its timer does."""
        assert self._running is not None
        self._running.synchronize()


def end_of(side: Side) -> int:
    """Where a broker says that its log ends; -1 while it says nothing."""
    with Client(side.port) as client:
        header, body = client.exchange(RUNTIME_INFO)
    return int(json.loads(body)["table"]["commitLogMaxOffset"]) if header["code"] == 0 else -1


def brokers_of(name_server: str) -> set[str]:
    """The names of the brokers that a name server lists."""
    with Client(int(name_server.rpartition(":")[2])) as client:
        cluster = fastjson.loads(client.exchange(CLUSTER_INFO)[1], "the cluster")
    assert isinstance(cluster, dict)
    return set(cluster["brokerAddrTable"])


def registered(name_server: str, cluster: str = "DefaultCluster") -> dict[int, str]:
    """Which brokers of broker-a a name server lists: id and address."""
    with Client(int(name_server.partition(":")[2])) as client:
        told = fastjson.loads(client.exchange(CLUSTER_INFO)[1], "the cluster")
    assert isinstance(told, dict)
    if "broker-a" not in told["clusterAddrTable"].get(cluster, ()):
        return {}
    return {int(number): address for number, address in told["brokerAddrTable"]["broker-a"]["brokerAddrs"].items()}


def file_of(store: Path, name: str) -> Any:
    """What a broker's file holds, once it is whole: RocketMQ empties its files before it writes them."""

    def read() -> list[Any]:
        with contextlib.suppress(MalformedConfig):
            return [json_files.read(store / "config" / name)]
        return []

    return await_that(read, f"{name} is whole")[0]


def table_of(store: Path, name: str) -> dict[Any, Any]:
    """One of the broker's tables as it lies on disk; empty while there is none."""
    file, table = TABLES[name]
    found = file_of(store, file)
    return dict(found.get(table) or {}) if isinstance(found, dict) else {}
