"""More queues than fit one step of the table: while the broker runs, over its stop and its start, on a slave."""

from __future__ import annotations

from pathlib import Path

from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.queue_table import QueueTable, TableWord
from store.queues.consume_queue import ConsumeQueue, queue_directories
from store.queues.sync import MANY_FILES
from store.reading import extent
from tests.harness.ha_node import wait_for
from tests.harness.small_steps import command
from tools.common.local_broker import LocalBroker

STEP = 256
TOPICS = 2 * STEP + 100  # the table grows twice; so many files are synced as a whole
QUEUE_FILE_BYTES = 2000
KEYS = {"mappedFileSizeCommitLog": 1 << 23, "mappedFileSizeConsumeQueue": QUEUE_FILE_BYTES}
STOP_SECONDS = 240


def put(broker: LocalBroker, first: int, until: int) -> None:
    with Producer(broker.store, timeout=60) as producer:
        for number in range(first, until):
            producer.send(f"topic-{number}", b"one", queue_id=0, wait=False)
        producer.flush(60)


def await_dispatched(broker: LocalBroker, end: int) -> None:
    counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)
    for _ in range(20):  # half a minute each
        try:
            wait_for(counters.reput_from_offset, end)
            return
        except AssertionError:
            continue
    raise AssertionError(f"dispatched to {counters.reput_from_offset.read()} of {end}")


def reserved(broker: LocalBroker) -> int:
    """How many queues its table has room for without growing."""
    table = QueueTable.attach(extent.require_running(broker.store).region_directory)
    try:
        return int(table.words[TableWord.RESERVED])
    finally:
        table.close()


def stop_in_order(broker: LocalBroker) -> None:
    broker.process.terminate()
    assert broker.process.wait(STOP_SECONDS) == 0, broker.log.read_text()[-1000:]
    assert "killed" not in broker.log.read_text()
    assert not (broker.store / "abort").exists(), "it was left in order"


def ends(store: Path) -> dict[str, int]:
    queues = queue_directories(store / "consumequeue")
    return {topic: ConsumeQueue(path, QUEUE_FILE_BYTES).max_offset for topic, _, path in queues}


def test_more_queues_than_one_step_of_the_table(tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path / "m", inside=command(STEP), **KEYS) as master,
        LocalBroker(
            tmp_path / "s",
            inside=command(STEP),
            brokerRole="SLAVE",
            brokerId=1,
            haMasterAddress=master.ha_address,
            **KEYS,
        ) as slave,
    ):
        put(master, 0, TOPICS)
        assert TOPICS > MANY_FILES and reserved(master) == 3 * STEP
        end = extent.readable_range(master.store).max_physical_offset
        await_dispatched(master, end)
        await_dispatched(slave, end)
        stop_in_order(slave)
        stop_in_order(master)
    assert ends(master.store) == ends(slave.store) == {f"topic-{number}": 1 for number in range(TOPICS)}
    with LocalBroker(tmp_path / "m", inside=command(STEP), **KEYS) as again:
        put(again, TOPICS - 2, TOPICS + 2)
        await_dispatched(again, extent.readable_range(again.store).max_physical_offset)
        stop_in_order(again)
    wanted = {f"topic-{number}": 2 if number in (TOPICS - 2, TOPICS - 1) else 1 for number in range(TOPICS + 2)}
    assert ends(again.store) == wanted
