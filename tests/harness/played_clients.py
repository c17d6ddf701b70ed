"""A clients role that a test plays: it answers with what came, and remembers what it hears, in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.links.exchange import Bells
from engine.remoting.links.front_links import FrontLinks, Json

SECONDS = 120.0


class PlayedTables:
    """What is in these."""

    def __init__(self, of: dict[str, Json]) -> None:
        self._of = of

    def tables(self) -> Iterable[str]:
        """All."""
        return self._of

    def names_in(self, table: str) -> list[str]:
        """All of one."""
        return list(self._of[table])

    def entries_of(self, table: str, names: Iterable[str]) -> Json:
        """As they are now."""
        return {name: self._of[table].get(name) for name in names}


class PlayedClients:
    """The clients role; `tables` is what it tells every front that begins."""

    def __init__(self, tables: dict[str, Json]) -> None:
        self.tables = {table: dict(entries) for table, entries in tables.items()}
        self.requests: list[tuple[int, RemotingCommand]] = []
        self.questions: list[tuple[str, Json]] = []
        self.replays: list[tuple[int, RemotingCommand]] = []
        self.gone: list[int] = []
        self.answers_questions = True
        self.links: FrontLinks | None = None
        self._loop = asyncio.new_event_loop()

    def answer_frame(self, request: RemotingCommand, channel: int) -> RemotingCommand | None:
        """The body comes back."""
        self.requests.append((channel, request))
        answer = request.answer(0, str(channel), {"code": str(request.code)}, bytes(request.body), version=407)
        return None if request.is_oneway else answer

    def answer_question(self, what: str, fields: Json) -> Json | None:
        """So do a question's fields."""
        self.questions.append((what, fields))
        return fields if self.answers_questions else None

    def replayed(self, request: RemotingCommand, channel: int) -> None:
        """Remembered."""
        self.replays.append((channel, request))

    def channel_left(self, channel: int) -> None:
        """Remembered."""
        self.gone.append(channel)

    def channel_lost(self, channel: int) -> None:
        """Likewise."""
        self.gone.append(channel)

    def all_replayed(self) -> None:
        """Nothing waits for it."""

    @property
    def front_tables(self) -> PlayedTables:
        """As the test wants them."""
        return PlayedTables(self.tables)

    def note(self, table: str, entries: Json) -> None:
        """Entries are new, changed, or gone where they are None; the fronts hear of it."""

        def change(links: FrontLinks) -> None:
            of_table = self.tables.setdefault(table, {})
            of_table |= entries
            links.note(table, list(entries))

        self.do(change)

    def begin(self, work: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Have something go on on its loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def do(self, work: Callable[[FrontLinks], Any]) -> Any:
        """Have something done on its loop; what comes of it."""

        async def done() -> Any:
            assert self.links is not None
            outcome = work(self.links)
            return await outcome if asyncio.iscoroutine(outcome) else outcome

        return self.begin(done()).result(SECONDS)


@contextmanager
def played(
    directory: Path, bells: Bells, tables: dict[str, Json], fronts: int = 1, made: type[PlayedClients] = PlayedClients
) -> Iterator[PlayedClients]:
    """A clients role until the block ends; then it is gone as if it had been killed, for all that fronts see."""
    clients = made(tables)
    clients.links = FrontLinks(clients._loop, directory, fronts, bells, clients)

    def turn() -> None:
        assert clients.links is not None
        asyncio.set_event_loop(clients._loop)
        clients.links.begin()
        clients._loop.run_forever()
        clients.links.close()
        clients._loop.close()

    turning = threading.Thread(target=turn, name="clients", daemon=True)
    turning.start()
    try:
        yield clients
    finally:
        clients._loop.call_soon_threadsafe(clients._loop.stop)
        turning.join()
