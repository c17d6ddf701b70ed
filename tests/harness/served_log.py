"""A store's log answered for as a broker's remoting port does, in a thread of the test: no broker runs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from engine.remoting.sockets.log_answers import LogAnswers
from engine.remoting.sockets.server import RemotingServer
from engine.settings.config import from_mapping
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from ipc.clock import wall_ms
from store.reading.log_reader import open_log


class ServedLog:
    """It serves from when it is made until `stop`."""

    def __init__(self, store: Path, regions: Path, segment_bytes: int, **settings: object) -> None:
        regions.mkdir(exist_ok=True)
        self.config = from_mapping(
            {
                "storePathRootDir": store,
                "mappedFileSizeCommitLog": segment_bytes,
                "brokerName": "pair",
                "brokerIP1": "127.0.0.1",
                **settings,
            }
        )
        self.counters, log = BrokerCounters.create(regions / "counters"), open_log(store)
        waiting.publish(self.counters.min_physical_offset, log.min_offset)
        waiting.publish(self.counters.max_physical_offset, log.max_offset)
        waiting.publish(self.counters.ha_listen_port, 10912)
        self._answers, self._loop = LogAnswers(self.config, self.counters), asyncio.new_event_loop()
        self._server = RemotingServer(
            lambda request, connection: self._answers.begin(request, connection, wall_ms()), lambda _number: None
        )
        self.address = f"127.0.0.1:{self._loop.run_until_complete(self._server.start('127.0.0.1', 0))}"
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Hang up and give everything back."""
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()
        self._answers.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
