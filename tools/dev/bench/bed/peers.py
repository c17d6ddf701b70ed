"""The peers' figures, from the program that runs them: `peers.py run PEER`, one JSON object a line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 900.0


class Peers:
    """A folder with a `peers.py`, or none: then there is nothing to compare with."""

    def __init__(self, folder: Path | None) -> None:
        self._program = folder / "peers.py" if folder is not None else None
        self._lines: list[dict[str, Any]] = []

    def run(self, peer: str, only: str, *, cpus: str = "", directory: Path | None = None) -> None:
        """Measure one peer now; a peer that is not to be had is left out, and said."""
        if self._program is None:
            return
        command = [*(["taskset", "-c", cpus] if cpus else []), sys.executable, str(self._program), "run", peer]
        command += ["--only", only, *(["--dir", str(directory)] if directory else [])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
        for line in done.stdout.splitlines():
            report = json.loads(line)
            if "skipped" in report:
                print(f"{peer}: {report['skipped']}", file=sys.stderr)
            else:
                self._lines.append({**report, "cpus": cpus})
        if done.returncode:
            print(f"{peer}: {done.stderr[-500:]}", file=sys.stderr)

    def figure(self, value: str, *, cpus: str = "", **wanted: object) -> float | None:
        """The named value of the first line that has all these fields; `work` may be a part of the line's."""
        work = str(wanted.pop("work", ""))
        for line in self._lines:
            fits = all(line.get(name) == asked for name, asked in wanted.items())
            if fits and work in line["work"] and line["cpus"] == cpus and line.get(value) is not None:
                return float(line[value])
        return None
