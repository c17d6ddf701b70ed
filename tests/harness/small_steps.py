"""Runs a `slipstream` command with a queue table that has room for few queues, and grows by as many.

    python -m tests.harness.small_steps QUEUES PYTHON -m tools.cli broker -c FILE

What a broker's children know they have from its supervisor, by fork.
"""

from __future__ import annotations

import sys

from engine.shared_memory import queue_table
from tools import cli


def command(queues: int) -> list[str]:
    """What to put before the command."""
    return [sys.executable, "-m", "tests.harness.small_steps", str(queues)]


if __name__ == "__main__":
    queue_table.QUEUES_STEP = int(sys.argv[1])
    sys.argv = sys.argv[sys.argv.index("tools.cli") :]
    cli.main()
