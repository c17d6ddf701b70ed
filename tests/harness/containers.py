"""Processes as containers have them: a PID namespace of their own, a /dev/shm of their own, or both. Takes root."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
OWN_PIDS = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
_MOUNTED = ["sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh"]
OWN_MEMORY = ["unshare", "--mount", *_MOUNTED]
OWN_BOTH = [*OWN_PIDS[:-1], "--mount", "--kill-child", *_MOUNTED]


def missing() -> str | None:
    """Why there are no namespaces here; None when there are."""
    if not shutil.which("unshare"):
        return "no unshare on the PATH"
    tried = subprocess.run([*OWN_BOTH, "true"], check=False, capture_output=True, text=True)
    return f"no namespaces can be made here: {tried.stderr.strip()}" if tried.returncode else None


def python(inside: list[str], code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a piece of Python there, to its end."""
    command = [*inside, sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=300)
