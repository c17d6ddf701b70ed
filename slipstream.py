"""Slipstream's public face: `from slipstream import Producer, open_store, read, session`.

    Producer     appends to the store of a broker on this machine
    open_store   reads a store, with a broker or without
    session      a Spark session that finds the format "rocketmq"
    read         a store, or several, as a Spark DataFrame of the columns and topics that are named
    map_segments a function on the mapped segments inside Spark's executors
    lag          how far a stream is behind, from its progress
    register     for a Spark session that was sent these packages (--py-files) and does not find the format by itself

What is named is imported when it is first asked for: `import slipstream` loads neither numba nor PySpark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ipc.module_names import DISTRIBUTION, named

if TYPE_CHECKING:
    from engine.producer import Producer
    from spark_bridge.map_segments import map_segments
    from spark_bridge.session import read, register, session
    from spark_bridge.stream.progress import Lag, lag
    from store.reading.opened import OpenStore, open_store

    __version__: str

__all__ = [
    "Lag", "OpenStore", "Producer", "__version__", "lag", "main", "map_segments", "open_store", "read", "register",
    "session",
]  # fmt: skip
_NEED_SPARK = frozenset("Lag lag map_segments read register session".split())
_LIES_IN = {
    "OpenStore": named("store.reading.opened"),
    "Producer": named("engine.producer"),
    "open_store": named("store.reading.opened"),
    **dict.fromkeys(_NEED_SPARK, named("spark_bridge")),
}


def main() -> None:
    """The command `slipstream`."""
    from tools.cli import main as command

    command()


def __getattr__(name: str) -> Any:
    """What `__all__` names, when it is first asked for. Raises ExtraMissing."""
    if name == "__version__":
        from importlib.metadata import version

        return version(DISTRIBUTION)
    if name not in _LIES_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _NEED_SPARK:
        from ipc.extras import require_spark

        require_spark(f"slipstream.{name}")
    value = globals()[name] = getattr(import_module(_LIES_IN[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
