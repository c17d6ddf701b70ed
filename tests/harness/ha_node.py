"""The replication processes of one broker, without the rest of it: the test itself is the writer of a master's log."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from engine.keeping import allocator, housekeeper
from engine.remoting import clients
from engine.remoting.links import exchange
from engine.replication import group_transfer, ha_listener, receiver, sender
from engine.role import Role, enter_child, run_role
from engine.settings.config import BrokerRole, from_mapping
from engine.shared_memory import live_settings
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.failures import Failures
from engine.shared_memory.queue_ends import QueueEnds
from ipc import waiting
from ipc.clock import monotonic_ms
from ipc.counters import Cursor
from ipc.descriptors import await_readable
from store.files.pointer import COUNTERS_FILE
from store.files.segment_files import SegmentFiles
from tests.harness.children import exit_code_of

WAIT_MS = 120_000


class Node:
    """A master (without `master`) or a slave, in a directory of its own."""

    def __init__(self, directory: Path, master: int | None = None, **settings: Any) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        role = {"brokerRole": "SYNC_MASTER"} if master is None else {"brokerRole": "SLAVE", "brokerId": 1}
        address = {} if master is None else {"haMasterAddress": f"127.0.0.1:{master}"}
        common = {
            "brokerIP1": "127.0.0.1",
            "haListenPort": 0,
            "storePathRootDir": directory,
            "haReconnectInterval": 500,
            "haHousekeepingInterval": WAIT_MS,  # nobody is taken for silent, on a machine that stands still
        }
        self.config = from_mapping({**role, **address, **common, **settings})
        self.counters = BrokerCounters.create(directory / COUNTERS_FILE)
        self.failures = Failures.create(directory)
        QueueEnds.create(directory, {}).close()
        exchange.create(directory, self.config.front_processes)
        self.bells = exchange.Bells.make(self.config.front_processes)
        live_settings.publish(self.counters, self.config)
        self.files = SegmentFiles(self.config.store_path_commit_log, self.config.mapped_file_size_commit_log_bytes)
        self.pids: dict[str, int] = {}
        if self.config.broker_role is BrokerRole.SLAVE:
            waiting.publish(self.counters.segment_request_offset, -1)

    def _open_role(self, name: str) -> Callable[[], Role]:
        config, counters = self.config, self.counters
        return {
            "allocator": lambda: allocator.open_role(config, counters),
            "group_transfer": lambda: group_transfer.open_role(config, counters),
            "ha_listener": self._open_listener,
            "housekeeper": lambda: housekeeper.open_role(config, counters),
            "receiver": lambda: receiver.open_role(config, counters),
            "clients": lambda: clients.open_role(config, counters, self.bells),
        }[name]

    def _open_listener(self) -> Role:
        """As the supervisor does it: again, where a sender of a killed one still has the port for a moment."""
        deadline_ms = monotonic_ms() + WAIT_MS
        while True:
            try:
                return ha_listener.open_role(self.config, self.counters, self.failures, sender.open_role)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or monotonic_ms() > deadline_ms:
                    raise
                await_readable(timeout_ms=20)

    def start(self, *names: str) -> Node:
        for name in names:
            self.pids[name] = self._fork(name)
            if name == "ha_listener":
                wait_until(self.counters.ha_listen_port, lambda port: port != 0)
        return self

    def _fork(self, name: str) -> int:
        parent_pid = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            stop = enter_child(name, parent_pid)
            run_role(self._open_role(name)(), self.counters.heartbeats[name], stop)
            status = 0
        finally:
            os._exit(status)

    def kill(self, name: str) -> None:
        pid = self.pids.pop(name)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def stop(self, name: str) -> int:
        pid = self.pids.pop(name)
        os.kill(pid, signal.SIGTERM)
        return exit_code_of(pid)

    def append(self, data: bytes) -> int:
        """What the writer of a master does, without records; the log's end then."""
        end = self.counters.max_physical_offset.read()
        rest = memoryview(data)
        while rest:
            base = self.files.base_of(end)
            with self.files.create(base) as segment:
                size = min(len(rest), segment.end_offset - end)
                segment.view[end - base : end - base + size] = rest[:size]
            rest, end = rest[size:], end + size
            waiting.publish(self.counters.max_physical_offset, end)
        return end

    def begin_with(self, data: bytes) -> None:
        """Let a master's log have been there when it started."""
        waiting.publish(self.counters.recovered_offset, self.append(data))

    def keep(self, start: int, data: bytes) -> None:
        """Let this node have had `data` before it started."""
        waiting.publish(self.counters.min_physical_offset, self.files.base_of(start))
        waiting.publish(self.counters.max_physical_offset, start)
        end = self.append(data)
        waiting.publish(self.counters.segment_request_offset, end)

    def log(self, start: int = 0) -> bytes:
        """The log from `start` to its end."""
        end, content = self.counters.max_physical_offset.read(), b""
        while start < end:
            base = self.files.base_of(start)
            with self.files.open(base) as segment:
                content += bytes(segment.view[start - base : end - base])
            start = base + self.files.segment_bytes
        return content

    def close(self) -> None:
        for name in list(self.pids):
            self.kill(name)
        self.failures.close()
        self.bells.close()
        self.counters.region.close()

    def __enter__(self) -> Node:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()


def wait_until(cursor: Cursor, is_reached: Callable[[int], bool], timeout_ms: int = WAIT_MS) -> int:
    """Wait on the counter itself; its value. Fails the test at the deadline, with what was seen last."""
    seen, deadline_ms = cursor.read(), monotonic_ms() + timeout_ms
    while not is_reached(seen):
        assert monotonic_ms() < deadline_ms, f"{cursor} within {timeout_ms} ms"
        seen = waiting.await_change(cursor, seen, 50)
    return seen


def wait_for(cursor: Cursor, offset: int) -> None:
    """Wait until the cursor has come to `offset`."""
    wait_until(cursor, lambda reached: reached >= offset)
