"""A running SYNC_MASTER that lets the slaves in sync decide: what is not stored, what is answered after how many."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from engine.errors import InSyncReplicasNotEnough
from engine.producer.broker_puts import SendResult
from engine.producer.producer import BatchResult, Producer, PutMessageStatus
from engine.protocol.ha.wire import FRAME_HEADER, FRAME_HEADER_BYTES, REPORT
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.harness.conditions import await_that
from tests.harness.ha_node import wait_until
from tools.common.local_broker import LocalBroker

SETTINGS = {
    "compat": "5", "enableSlaveActingMaster": "true", "enableAutoInSyncReplicas": "true", "inSyncReplicas": 3,
    "minInSyncReplicas": 2, "slaveTimeout": 1500, "mappedFileSizeCommitLog": 1 << 20, "brokerRole": "SYNC_MASTER",
}  # fmt: skip


@contextmanager
def slave_by_hand(master: LocalBroker, *, acknowledges: bool) -> Iterator[None]:
    """A slave that takes everything, and says so or keeps silent."""
    with socket.create_connection(("127.0.0.1", master.port + 1)) as sock:
        sock.sendall(REPORT.pack(0))
        thread = threading.Thread(target=follow, args=(sock, acknowledges))
        thread.start()
        try:
            yield
        finally:
            with suppress(OSError):  # or the master has hung up
                sock.shutdown(socket.SHUT_RDWR)
            thread.join()


def follow(sock: socket.socket, acknowledges: bool) -> None:
    with suppress(ConnectionError):
        while len(header := sock.recv(FRAME_HEADER_BYTES, socket.MSG_WAITALL)) == FRAME_HEADER_BYTES:
            offset, size = FRAME_HEADER.unpack(header)
            if size and len(sock.recv(size, socket.MSG_WAITALL)) < size:
                return
            if acknowledges:
                sock.sendall(REPORT.pack(offset + size))


def is_stored(put: Callable[[], SendResult | BatchResult]) -> bool:
    """Whether the slave that acknowledges was in time: a busy machine's is late now and then."""
    status = put().status
    assert status in (PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
    return status is PutMessageStatus.PUT_OK


def test_the_slaves_in_sync_decide_what_a_put_waits_for(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "m", **SETTINGS) as master, Producer(master.store, timeout=60) as producer:
        counters = BrokerCounters.attach(extent.require_running(master.store).region_directory, writable=True)
        for put in (lambda: producer.send("t", b"x"), lambda: producer.send_batch("t", [b"x"])):
            with pytest.raises(InSyncReplicasNotEnough, match="1 of the 2 replicas"):
                put()
        assert counters.max_physical_offset.read() == 0, "nothing was stored"
        assert producer.send("t", b"not waited for", properties={"WAIT": "false"}).status is PutMessageStatus.PUT_OK
        with slave_by_hand(master, acknowledges=True):
            wait_until(counters.in_sync_slaves, lambda count: count == 1)
            await_that(lambda: is_stored(lambda: producer.send("t", b"one slave")), "one slave has it")
            await_that(lambda: is_stored(lambda: producer.send_batch("t", [b"one slave"] * 3)), "and all of these")
            with slave_by_hand(master, acknowledges=False):
                wait_until(counters.in_sync_slaves, lambda count: count == 2)
                assert producer.send("t", b"two of them").status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
            wait_until(counters.in_sync_slaves, lambda count: count == 1)
            await_that(lambda: is_stored(lambda: producer.send("t", b"one again")), "one slave is enough again")
