"""Offsets in the program's own database, saved in the transaction that does a message's work: each message counts once.

    offsets = DatabaseOffsets(lambda: sqlite3.connect("bank.db"), "billing")
    with Consumer("10.0.0.1:9876", "billing", "orders", ordered=True, offsets=offsets) as consumer:
        for message in consumer:
            with offsets.connect() as connection:
                connection.execute("UPDATE accounts ...")
                offsets.save(connection, message)

Work and offset are committed together, or neither is. What was committed is never handed out again, and a member that
lost its queue without noticing cannot commit: another one's offset is there already.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

from engine.clients.cluster import Place
from engine.clients.consuming.received import ReceivedMessage
from engine.clients.names import ClientError, check_group
from engine.errors import EngineError

TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}").fullmatch
MARKS = {"qmark": "?", "format": "%s"}
TABLE = "slipstream_offsets"


class AlreadyHandled(EngineError):
    """Raised when the database says that a message was handled before, by another member or before a restart.

    Next: roll the transaction back, and acknowledge the message: its work is done.
    """

    code = "ALREADY_HANDLED"

    def __init__(self, place: Place, offset: int, saved: int | None) -> None:
        queue = f"{place.topic}/{place.queue_id} at {place.broker}"
        why = "another member saves an offset now" if saved is None else f"the database goes on at {saved}"
        super().__init__(f"{queue}: the message at {offset} was handled before: {why}")


class Connected(Protocol):
    """A connection of sqlite3, psycopg or SQLAlchemy, or a cursor of any driver."""

    def execute(self, sql: str, parameters: Any, /) -> Any:
        """Execute a statement with its parameters, as sqlite3 and psycopg do."""


class DatabaseOffsets:
    """The offsets of one group in a table. `connect` makes a connection for what the consumer itself reads.

    `marks` is how the driver marks parameters: "qmark" (sqlite3) or "format" (psycopg, PyMySQL). Raises ClientError.
    """

    def __init__(
        self, connect: Callable[[], Any], group: str, *, table: str = TABLE, marks: str = "qmark", create: bool = True
    ) -> None:
        check_group(group)
        if not TABLE_NAME(table):
            raise ClientError(f"table {table[:64]!r}: give letters, digits and underscores")
        if marks not in MARKS:
            raise ClientError(f"marks={marks!r}: give one of {', '.join(sorted(MARKS))}")
        self.connect, self.group, self._table, self._mark = connect, group, table, MARKS[marks]
        if create:
            self._create()

    def _create(self) -> None:
        columns = "group_name VARCHAR(255) NOT NULL, topic VARCHAR(255) NOT NULL, broker VARCHAR(255) NOT NULL"
        queue = "queue_id INTEGER NOT NULL, next_offset BIGINT NOT NULL"
        key = "PRIMARY KEY (group_name, topic, broker, queue_id)"
        for is_last in (False, True):  # PostgreSQL refuses one of two that create a table at once
            connection = self.connect()
            try:
                self._execute(connection, f"CREATE TABLE IF NOT EXISTS {self._table} ({columns}, {queue}, {key})")
                connection.commit()
                return
            except Exception:  # of the driver: a row of its catalog that exists, or the table
                if is_last:
                    raise
            finally:
                connection.close()

    def offset_of(self, place: Place) -> int | None:
        """Return the offset of a queue's next message; None for a queue of which nothing was handled."""
        connection = self.connect()
        try:
            return self._saved(connection, place)
        finally:
            connection.close()

    def save(self, connection: Connected, message: ReceivedMessage) -> None:
        """Say in a transaction that a message is handled; the transaction's commit makes it true.

        Raises AlreadyHandled: then the transaction is to be rolled back.
        """
        place, offset = message.handed.queue.place, message.queue_offset
        update = f"UPDATE {self._table} SET next_offset = {self._mark}"
        not_beyond = f"WHERE {self._where()} AND next_offset <= {self._mark}"
        changed = self._execute(connection, f"{update} {not_beyond}", (offset + 1, *self._key(place), offset))
        if changed.rowcount > 0:
            return
        saved = self._saved(connection, place)
        if saved is not None:
            raise AlreadyHandled(place, offset, saved)
        marks = ", ".join([self._mark] * 5)
        columns = "group_name, topic, broker, queue_id, next_offset"
        values = (*self._key(place), offset + 1)
        try:
            self._execute(connection, f"INSERT INTO {self._table} ({columns}) VALUES ({marks})", values)
        except Exception as error:
            if _is_taken(error):  # since the look above
                raise AlreadyHandled(place, offset, None) from error
            raise

    def _saved(self, connection: Connected, place: Place) -> int | None:
        select = f"SELECT next_offset FROM {self._table} WHERE {self._where()}"
        row = self._execute(connection, select, self._key(place)).fetchone()
        return None if row is None else int(row[0])

    def _where(self) -> str:
        return " AND ".join(f"{name} = {self._mark}" for name in ("group_name", "topic", "broker", "queue_id"))

    def _key(self, place: Place) -> tuple[str, str, str, int]:
        return self.group, place.topic, place.broker, place.queue_id

    @staticmethod
    def _execute(connection: Connected, sql: str, parameters: tuple[Any, ...] = ()) -> Any:
        execute = getattr(connection, "exec_driver_sql", connection.execute)  # SQLAlchemy's name for it
        done = execute(sql, parameters)
        return connection if done is None else done  # a cursor of DB-API gives nothing back


def _is_taken(error: Exception) -> bool:
    """Whether a database refused a row that exists: every driver of DB-API calls that by one name."""
    return any(kind.__name__ == "IntegrityError" for kind in type(error).__mro__)
