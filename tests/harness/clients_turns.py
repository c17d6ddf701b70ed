"""The clients role, turned by the test itself until something has come to pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.remoting.clients import Clients
from engine.remoting.links import exchange
from engine.settings.config import BrokerConfig, from_mapping
from engine.shared_memory import live_settings
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.queue_ends import QueueEnds
from ipc import waiting
from ipc.clock import monotonic_ms
from tests.harness import served_front
from tests.harness.conditions import SECONDS
from tools.common.local_broker import free_port


def turn_until(server: Clients, done: Callable[[], bool]) -> None:
    """Fails the test where it does not come to pass."""
    deadline_ms = monotonic_ms() + SECONDS * 1000  # turns end early where something comes: they are no measure
    while not done():
        assert monotonic_ms() < deadline_ms, "it did not come to pass"
        server.do_work(monotonic_ms())
        server.idle(10)


@contextmanager
def role(store: Path, region_dir: Path, names: str, **settings: object) -> Iterator[tuple[Clients, BrokerConfig]]:
    """The role of a broker of these name servers, with a front that hands it clients' requests."""
    port = free_port()
    config = from_mapping(
        {
            "storePathRootDir": store,
            "regionPath": region_dir,
            "brokerName": "a",
            "brokerIP1": "127.0.0.1",
            "listenPort": port,
            "namesrvAddr": names,
            **settings,
        }
    )
    counters = BrokerCounters.create(region_dir / "counters")
    live_settings.publish(counters, config)
    waiting.publish(counters.ha_listen_port, port + 1)
    exchange.create(region_dir, 1)
    QueueEnds.create(region_dir, {}).close()
    bells = exchange.Bells.make(1)
    server = Clients(config, counters, bells)
    try:
        with served_front.served(config, counters, bells):
            yield server, config
    finally:
        server.close()
        bells.close()
