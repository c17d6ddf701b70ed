"""Slipstream's public face: `from slipstream import Producer, lake, open_store, read, scan, session`.

    AdminClient  topics, groups, offsets and lag, as mqadmin shows and changes them
    Consumer     consumes topics as a member of a group, from name servers or a broker on this machine; arguments of it
                 are Subscription (SQL92), Credentials and DatabaseOffsets
    Producer     appends to the store of a broker on this machine
    RemoteProducer sends to the brokers of any host; ProducerSettings and Credentials are arguments of it
    traced_send  sends in a span of OpenTelemetry; `processing` is the span of a received message
    register_kombu gives Kombu and Celery the transport `slipstream://`
    open_store   reads a store, with a broker or without
    session      a Spark session that finds the format "rocketmq"
    scan         a store, or several, as Arrow record batches, without Spark
    lake         loads a store into a table of Iceberg or Delta, without Spark
    read         a store, or several, as a Spark DataFrame of the columns and topics that are named
    map_segments a function on the mapped segments inside Spark's executors
    counted      a DataFrame whose rows are counted by where they were read; `figures` tells the counts
    lag          how far a stream is behind, from its progress
    explain_read what a DataFrame or a table would touch: stores, queues, splits and bytes
    register     a store's topics and metadata as tables in SQL; also for a session that does not find the format itself

What is named is imported when it is first asked for: `import slipstream` loads neither numba nor PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipc.lazy_names import name_of
from ipc.machine import require_known
from ipc.module_names import named, version_here

if TYPE_CHECKING:
    from engine.clients.access import Credentials
    from engine.clients.admin import AdminClient
    from engine.clients.consuming.consumer import Consumer
    from engine.clients.consuming.database_offsets import DatabaseOffsets
    from engine.clients.consuming.requests import Subscription
    from engine.clients.integrations.kombu_transport import register_kombu
    from engine.clients.integrations.tracing import processing, traced_send
    from engine.clients.sending.producer import ProducerSettings, RemoteProducer
    from engine.producer import Producer
    from spark_bridge.driver import explain_read, read, session
    from spark_bridge.kernels import map_segments
    from spark_bridge.lake.tables import lake
    from spark_bridge.records.reading import Source, counted, figures
    from spark_bridge.scanning import scan
    from spark_bridge.sql.registration import register
    from spark_bridge.stream.progress import Lag, lag
    from store.reading.opened import OpenStore, open_store

    __version__: str

__all__ = [
    "AdminClient", "Consumer", "Credentials", "DatabaseOffsets", "Lag", "OpenStore", "Producer", "ProducerSettings",
    "RemoteProducer", "Source", "Subscription", "__version__", "counted", "explain_read", "figures", "lag", "lake",
    "main", "map_segments", "open_store", "processing", "read", "register", "register_kombu", "scan", "session",
    "traced_send",
]  # fmt: skip
_NEED_SPARK = frozenset("Lag Source counted explain_read figures lag map_segments read register session".split())
_NEED_ARROW, _NEED_LAKE = frozenset({"scan"}), frozenset({"lake"})
_NEED_OTEL, _NEED_KOMBU = frozenset({"processing", "traced_send"}), frozenset({"register_kombu"})
_LIES_IN = {
    "AdminClient": named("engine.clients.admin"),
    "Consumer": named("engine.clients.consuming.consumer"),
    "Credentials": named("engine.clients.access"),
    "DatabaseOffsets": named("engine.clients.consuming.database_offsets"),
    "ProducerSettings": named("engine.clients.sending.producer"),
    "RemoteProducer": named("engine.clients.sending.producer"),
    "Subscription": named("engine.clients.consuming.requests"),
    "OpenStore": named("store.reading.opened"),
    "Producer": named("engine.producer"),
    "lake": named("spark_bridge.lake.tables"),
    "register_kombu": named("engine.clients.integrations.kombu_transport"),
    **dict.fromkeys(_NEED_OTEL, named("engine.clients.integrations.tracing")),
    "open_store": named("store.reading.opened"),
    "scan": named("spark_bridge"),
    **dict.fromkeys(_NEED_SPARK, named("spark_bridge")),
}


def main() -> None:
    """Run the command `slipstream`: entry point of the console script."""
    from tools.cli import main as command

    command()


def __getattr__(name: str) -> Any:
    """Return what `__all__` names, when it is first asked for. Raises ExtraMissing; ImportError with the cause."""
    if name == "__version__":
        return version_here()
    if name not in _LIES_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_known()
    if name in _NEED_SPARK:
        from ipc.extras import require_spark

        require_spark(f"slipstream.{name}")
    if name in _NEED_ARROW:
        from ipc.extras import require_arrow

        require_arrow(f"slipstream.{name}")
    if name in _NEED_LAKE:
        from ipc.extras import require_lake

        require_lake(f"slipstream.{name}")
    if name in _NEED_OTEL | _NEED_KOMBU:
        from ipc.extras import require_kombu, require_otel

        (require_otel if name in _NEED_OTEL else require_kombu)(f"slipstream.{name}")
    value = globals()[name] = name_of(_LIES_IN[name], name, f"slipstream.{name}")
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if __name__ == "__main__":  # `python -m slipstream`, which in the wheel `__main__.py` is
    main()
