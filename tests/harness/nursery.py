"""The process that loads a broker's code once and forks a broker for each message that it gets (see `forked`)."""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import threading

from tests.harness.forked import BYTES, FDS, MESSAGE_BYTES_MAX

OF_A_BROKER = ("tools.run.broker", "engine.reload", "engine.supervisor", "tools.run.sidecar_role")


def main(fd: int) -> list[str]:
    """Serve until the other end is closed; return in each child the arguments of its command."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `slipstream broker` does
    _load()
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    statuses: dict[int, int] = {}
    waiting = select.poll()
    for number in (woken, fd):
        waiting.register(number, select.POLLIN)
    with socket.socket(fileno=fd) as requests:
        while True:
            ready = [number for number, _events in waiting.poll()]
            if woken in ready:
                os.read(woken, 4096)
                _reap(statuses)
            if fd in ready:
                said, fds, _flags, _from = socket.recv_fds(requests, MESSAGE_BYTES_MAX, FDS)
                if not said:
                    sys.exit(0)
                log, status = fds
                if not (pid := os.fork()):
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for number in (woken, wake, status, *statuses.values()):
                        os.close(number)
                    break
                statuses[pid] = status
                os.close(log)
                os.write(status, pid.to_bytes(BYTES))
    return _become(json.loads(said), log)


def _load() -> None:
    """Import what a broker imports, and load its kernels."""
    for name in OF_A_BROKER:
        importlib.import_module(name)
    from engine import warm
    from engine.settings.config import from_mapping
    from ipc.compiled.kernels import is_carried

    if is_carried():
        return
    scratch = tempfile.gettempdir()
    warm.warm_up(from_mapping({"regionPath": scratch, "storePathRootDir": scratch}), verification=True)
    vars(warm)["warm_up"] = lambda _config: None  # a forked broker is warm already
    gc.collect()
    gc.freeze()  # a broker's collections would look through all that, and so copy its pages


def _reap(statuses: dict[int, int]) -> None:
    """Say of each child that has ended how it ended."""
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with os.fdopen(statuses.pop(pid), "wb") as to:
            to.write(status.to_bytes(BYTES, signed=True))


def _become(request: dict[str, object], log: int) -> list[str]:
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    os.chdir(str(request["cwd"]))
    return list(request["arguments"])  # type: ignore[call-overload, no-any-return]


def _run() -> int:
    """Run the command line; return its exit code."""
    from tools.cli import main as command_line

    try:
        command_line()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    return 0


if __name__ == "__main__":
    sys.argv[1:] = main(int(sys.argv[1]))
    code = _run()
    # An interpreter that ends takes down all modules and kernels, piece by piece: a third of a short broker's CPU time.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
