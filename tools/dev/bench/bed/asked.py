"""What a measurement is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from tools.dev.bench.bed.peers import Peers


class Asked(NamedTuple):
    """The options that a measurement may need; `mib` is the size of the log that Spark reads."""

    scratch: Path
    console: Console
    peers: Peers
    rocketmq: Path | None
    kafka: Path | None
    repeat: int
    mib: int
