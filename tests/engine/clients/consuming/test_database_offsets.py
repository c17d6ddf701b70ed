"""Messages that count once beside a database, however often their program is killed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from engine.clients.cluster import Place
from engine.clients.consuming.assigned_queue import AssignedQueue
from engine.clients.consuming.consumer import Consumer
from engine.clients.consuming.database_offsets import AlreadyHandled, DatabaseOffsets
from engine.clients.consuming.received import ReceivedMessage
from engine.clients.consuming.shelf import Handed
from engine.clients.names import ClientError
from engine.producer import Producer
from engine.protocol.clients.lock_bodies import request_body
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.sockets.client import RemotingClient
from store.message.topics import RETRY_PREFIX
from tests.engine.clients.consuming.test_assigned_queue import at
from tests.harness.conditions import SECONDS, await_that
from tests.harness.postgres import postgres
from tools.common.local_broker import LocalBroker

PLACE = Place("t", "b", 1)
NAME = "b"
MESSAGES, KILLS = 60, 3
PROGRAM = """
import sys
from engine.clients.consuming.consumer import Consumer
from engine.clients.consuming.database_offsets import DatabaseOffsets
address = sys.argv[2]
{connecting}
offsets = DatabaseOffsets(connect, "bank", marks="{marks}")
options = {{"ordered": True, "offsets": offsets, "consume_from": "first", "timeout": 120.0}}
with Consumer(sys.argv[1], "bank", "orders", **options) as consumer:
    print(consumer.client_id, flush=True)
    for message in consumer:
        {working}
        print(message.text, flush=True)
"""
SQLALCHEMY = """
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
engine = create_engine(address)
connect = engine.connect
"""
IN_SESSION = """
        with Session(engine) as session, session.begin():
            session.execute(text("INSERT INTO seen VALUES (:body)"), {"body": message.text})
            offsets.save(session.connection(), message)
"""
PLAIN = """
        with connect() as connection:
            connection.execute("INSERT INTO seen VALUES (MARK)", (message.text,))
            offsets.save(connection, message)
"""
PROGRAMS = {
    "sqlite3": PROGRAM.format(
        connecting="import sqlite3\nconnect = lambda: sqlite3.connect(address, timeout=60.0)",
        marks="qmark",
        working=PLAIN.strip().replace("MARK", "?"),
    ),
    "psycopg": PROGRAM.format(
        connecting="import psycopg\nconnect = lambda: psycopg.connect(address)",
        marks="format",
        working=PLAIN.strip().replace("MARK", "%s"),
    ),
    "sqlalchemy": PROGRAM.format(connecting=SQLALCHEMY, marks="format", working=IN_SESSION.strip()),
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as address:
        yield address


def message_at(offset: int) -> ReceivedMessage:
    [block] = at(offset)
    [message] = block.take(1)
    handed = Handed(message, AssignedQueue(PLACE, 0), 0)
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


def test_two_members_that_save_a_first_offset_at_once_do_not_both_count(server: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [pool.submit(DatabaseOffsets, lambda: psycopg.connect(server), "race", marks="format") for _ in range(8)]
        offsets = [future.result() for future in made].pop()
        with psycopg.connect(server) as one, psycopg.connect(server) as another:
            offsets.save(one, message_at(0))
            late = pool.submit(offsets.save, another, message_at(0))
            await_that(partial(waits_for_another, server), "the second one waits for the first one's row")
            one.commit()
            with pytest.raises(AlreadyHandled, match="another member saves an offset now"):
                late.result(SECONDS)
            another.rollback()
            with pytest.raises(AlreadyHandled, match="goes on at 1"):
                offsets.save(another, message_at(0))
    assert offsets.offset_of(PLACE) == 1


def waits_for_another(server: str) -> bool:
    with psycopg.connect(server) as looking:
        return looking.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is not None


def test_an_error_of_another_kind_is_not_hidden(server: str) -> None:
    with pytest.raises(psycopg.errors.InvalidSchemaName):
        DatabaseOffsets(lambda: psycopg.connect(server, options="-c search_path="), "g", marks="format")


@pytest.mark.parametrize(
    ("compat", "kind"),
    [("4.9", "sqlite3"), ("5", "sqlite3"), ("5", "psycopg"), ("5", "sqlalchemy")],
)
def test_a_program_that_is_killed_again_and_again_counts_each_message_once(
    compat: str, kind: str, database: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address, connect = str(database), partial(sqlite3.connect, database, timeout=60.0)
    if kind != "sqlite3":
        address = request.getfixturevalue("server")
        connect = partial(psycopg.connect, address)
        with closing(connect()) as connection:
            connection.execute("DROP TABLE IF EXISTS seen, slipstream_offsets")
            connection.execute("CREATE TABLE seen (body TEXT)")
            connection.commit()
    if kind == "sqlalchemy":
        address = f"postgresql+psycopg://?{address.replace(' ', '&')}"

    def seen() -> list[int]:
        with closing(connect()) as connection:
            return sorted(int(body) for (body,) in connection.execute("SELECT body FROM seen"))

    with LocalBroker(tmp_path / "b", compat=compat, brokerName=NAME, mappedFileSizeCommitLog=1 << 20) as broker:
        with Producer(broker.store, timeout=120.0) as producer:
            for number in range(MESSAGES):
                producer.send("orders", str(number), queue_id=number % 2)
        command = [sys.executable, "-c", PROGRAMS[kind], str(broker.store), address]
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
            while len(seen()) < MESSAGES:
                assert program.stdout is not None
                assert program.stdout.readline(), "it goes on"
            program.kill()
            program.communicate()
    assert seen() == [*range(MESSAGES)]


def unlock(broker: LocalBroker, client_id: str) -> None:
    """Give back what a killed member locked: RocketMQ waits a minute for that."""
    places = [Place(topic, NAME, queue) for topic in ("orders", RETRY_PREFIX + "bank") for queue in range(8)]
    body = request_body("bank", client_id, places, only_this_broker=False)
    with RemotingClient(f"127.0.0.1:{broker.port}", 120.0) as asking:
        assert asking.ask(RequestCode.UNLOCK_BATCH_MQ, body=body).code == 0
