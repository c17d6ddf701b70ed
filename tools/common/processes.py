"""Processes that were started here: how they are ended."""

from __future__ import annotations

import subprocess
from typing import Any


def end(process: subprocess.Popen[Any], seconds: float) -> None:
    """SIGTERM, and SIGKILL when it has not ended after `seconds`; nothing when it has ended already."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
