"""Messages that count once beside a database, however often their program is killed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.clients.cluster import Place
from engine.clients.consuming.assigned_queue import AssignedQueue
from engine.clients.consuming.consumer import Consumer
from engine.clients.consuming.database_offsets import AlreadyHandled, DatabaseOffsets
from engine.clients.consuming.received import ReceivedMessage
from engine.clients.consuming.requests import lock_body
from engine.clients.consuming.shelf import Handed
from engine.clients.names import ClientError
from engine.producer import Producer
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.sockets.client import RemotingClient
from store.message.topics import RETRY_PREFIX
from tests.engine.clients.consuming.test_assigned_queue import MESSAGE
from tools.common.local_broker import LocalBroker

PLACE = Place("t", "b", 1)
NAME = "b"
MESSAGES, KILLS = 60, 3
PROGRAM = """
import sqlite3, sys
from engine.clients.consuming.consumer import Consumer
from engine.clients.consuming.database_offsets import DatabaseOffsets

def connect():
    return sqlite3.connect(sys.argv[2], timeout=60.0)

offsets = DatabaseOffsets(connect, "bank")
options = {"ordered": True, "offsets": offsets, "consume_from": "first", "timeout": 120.0}
with Consumer(sys.argv[1], "bank", "orders", **options) as consumer:
    print(consumer.client_id, flush=True)
    for message in consumer:
        with connect() as connection:
            connection.execute("INSERT INTO seen VALUES (?)", (message.text,))
            offsets.save(connection, message)
        print(message.text, flush=True)
"""


def message_at(offset: int) -> ReceivedMessage:
    handed = Handed(replace(MESSAGE, queue_offset=offset), AssignedQueue(PLACE, 0), 0)
    return ReceivedMessage(handed, None)  # type: ignore[arg-type]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "bank.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE seen (body TEXT)")
        connection.commit()
    yield path


def test_work_and_offset_are_committed_together_or_not_at_all(database: Path) -> None:
    offsets = DatabaseOffsets(lambda: sqlite3.connect(database), "bank")
    assert offsets.offset_of(PLACE) is None
    with closing(offsets.connect()) as connection:
        offsets.save(connection, message_at(4))
        connection.rollback()
        assert offsets.offset_of(PLACE) is None
        offsets.save(connection, message_at(4))
        connection.commit()
    assert offsets.offset_of(PLACE) == 5
    assert DatabaseOffsets(offsets.connect, "another").offset_of(PLACE) is None


def test_what_another_member_handled_is_refused(database: Path) -> None:
    offsets = DatabaseOffsets(lambda: sqlite3.connect(database), "bank")
    with closing(offsets.connect()) as connection:
        offsets.save(connection, message_at(4))
        connection.commit()
        with pytest.raises(AlreadyHandled, match="the message at 4 was handled before: the database goes on at 5"):
            offsets.save(connection, message_at(4))
        offsets.save(connection, message_at(9))
        connection.commit()
    assert offsets.offset_of(PLACE) == 10, "what retention took is left out"


def test_a_cursor_and_marks_of_another_driver_do(database: Path) -> None:
    class Driver:
        """A cursor as DB-API has it, of a driver that marks parameters with %s."""

        def __init__(self) -> None:
            self._connection = sqlite3.connect(database)
            self._cursor = self._connection.cursor()

        def execute(self, sql: str, parameters: tuple[Any, ...]) -> None:
            assert "?" not in sql
            self._cursor.execute(sql.replace("%s", "?"), parameters)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._cursor if hasattr(self._cursor, name) and name != "close" else self._connection, name)

    offsets = DatabaseOffsets(Driver, "bank", marks="format")
    with closing(Driver()) as driver:
        offsets.save(driver, message_at(0))
        offsets.save(driver, message_at(1))
        driver.commit()
    assert offsets.offset_of(PLACE) == 2


def test_wrong_arguments_are_refused_by_name(database: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(database)

    with pytest.raises(ClientError, match="letters, digits and underscores"):
        DatabaseOffsets(connect, "g", table="x; DROP TABLE seen")
    with pytest.raises(ClientError, match="format, qmark"):
        DatabaseOffsets(connect, "g", marks="named")
    with pytest.raises(ClientError, match="ordered=True"):
        Consumer("127.0.0.1:1", "g", "t", offsets=DatabaseOffsets(connect, "g"))


@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_a_program_that_is_killed_again_and_again_counts_each_message_once(
    compat: str, database: Path, tmp_path: Path
) -> None:
    with LocalBroker(tmp_path / "b", compat=compat, brokerName=NAME, mappedFileSizeCommitLog=1 << 20) as broker:
        with Producer(broker.store, timeout=120.0) as producer:
            for number in range(MESSAGES):
                producer.send("orders", str(number), queue_id=number % 2)
        command = [sys.executable, "-c", PROGRAM, str(broker.store), str(database)]
        for _ in range(KILLS):
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
                assert program.stdout is not None
                client_id = program.stdout.readline().strip()
                for _ in range(MESSAGES // KILLS // 2):
                    assert program.stdout.readline().strip().isdigit()
                program.kill()
                program.stdout.read()
            unlock(broker, client_id)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            while len(seen_in(database)) < MESSAGES:
                assert program.stdout is not None
                assert program.stdout.readline(), "it goes on"
            program.kill()
            program.communicate()
    assert seen_in(database) == [*range(MESSAGES)]


def unlock(broker: LocalBroker, client_id: str) -> None:
    """Give back what a killed member locked: RocketMQ waits a minute for that."""
    places = [Place(topic, NAME, queue) for topic in ("orders", RETRY_PREFIX + "bank") for queue in range(8)]
    body = lock_body("bank", client_id, (place.value() for place in places))
    with RemotingClient(f"127.0.0.1:{broker.port}", 120.0) as asking:
        assert asking.ask(RequestCode.UNLOCK_BATCH_MQ, body=body).code == 0


def seen_in(database: Path) -> list[int]:
    with closing(sqlite3.connect(database, timeout=60.0)) as connection:
        return sorted(int(body) for (body,) in connection.execute("SELECT body FROM seen"))
