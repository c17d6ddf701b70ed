"""Whether name servers and brokers are asked over TLS: as RocketMQ's tls.properties says that `tlsConfigFile` names.

The file and what it names are read on the driver's host alone, and again when they change; executors ask nobody.
"""

from __future__ import annotations

import logging
import os
import stat
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from spark_bridge.options.values import InvalidOption

if TYPE_CHECKING:
    from engine.net.tls import RenewedContext

Tls: TypeAlias = "RenewedContext"
log = logging.getLogger("slipstream.spark")

FILE_BYTES_MAX = 1 << 20
KEPT_MAX = 16


def tls_of(path: str | None) -> Tls | None:
    """Return how to connect; None for plaintext. Raises InvalidOption for a file that cannot be used."""
    return None if path is None else _context(os.path.abspath(path))


@lru_cache(KEPT_MAX)
def _context(path: str) -> Tls:
    """Return one context for all reads with the same file; it follows changes there."""
    from engine.net.tls import UNUSABLE, RenewedContext, of_client  # seldom: it takes time to load

    _require_small_file(path)
    try:
        context = RenewedContext(Path(path), of_client)
    except UNUSABLE as error:
        raise InvalidOption(f"tlsConfigFile={path!r}: {error}") from None
    for warning in context.file.warnings:
        log.warning("%s", warning)
    return context


def _require_small_file(path: str) -> None:
    try:
        status = os.stat(path)
    except OSError as error:
        what = f"{error.strerror or error}; a tls.properties that the driver can read"
        raise InvalidOption(f"tlsConfigFile={path!r}: {what}") from None
    if not stat.S_ISREG(status.st_mode) or status.st_size > FILE_BYTES_MAX:
        raise InvalidOption(f"tlsConfigFile={path!r}: not a tls.properties of up to {FILE_BYTES_MAX} bytes")
