"""A Python process that Spark made for itself: how to know it, and what it does not do again for every task."""

from __future__ import annotations

import gc
import sys
from functools import cache

DAEMON = "pyspark.daemon"


def module_run() -> str:
    """The module that this process runs; none in a program of the user's."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return "" if spec is None else str(spec.name)


def keep_modules() -> None:
    """Exclude what is loaded now from garbage collection, in a process of Spark's daemon.

    Such a process looks through all its objects for garbage after each task and each plan. Modules are nearly all there
    is, and never garbage: for a small read that takes as long as all else in Python.
    """
    if module_run() == DAEMON:
        gc.collect()
        gc.freeze()


def keep_buffers() -> None:
    """Keep what Arrow frees, in the same processes, by the C library's rules (`records.freed_memory`).

    Its own pool gives back pages that were free for ten milliseconds, which a batch takes on its way to Spark.
    """
    if module_run() == DAEMON:
        import pyarrow as pa  # readers have it; who is asked for a schema has not

        pa.set_memory_pool(pa.system_memory_pool())


@cache  # a process reads many splits
def keep_what_reading_loaded() -> None:
    """The same of what the first split loads while it is read, most of this package among it."""
    keep_modules()
