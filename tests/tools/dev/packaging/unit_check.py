"""The unit of `slipstream init` under a real systemd, and what came of it as a page in docs/.

    python -m tests.tools.dev.packaging.unit_check [--ledger docs/service.md]

Takes root and debootstrap. The root is that of the Dockerfile's image with systemd added; systemd is the first process
of a PID namespace, with mounts, network, host name, IPC and a control group of its own: it reaches nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from tests.harness.conditions import await_that
from tests.tools.dev.packaging.played import ledger_options, play_in_own_mounts
from tools.dev.packaging import dockerfile, layers
from tools.dev.packaging.image import Builder
from tools.dev.packaging.machine import Machine

ROOT = Path(__file__).resolve().parents[4]
UNIT, FOLDER, USER = "slipstream.service", "/srv/orders", "slipstream"
STORE, FILE = f"{FOLDER}/store", f"{FOLDER}/broker.properties"
SECONDS = 900.0
EXITED = "1"  # CLD_EXITED
WATCHED = "[Service]\nWatchdogSec=20s\n"
MESSAGES = 1000
FILES = 1048576  # LimitNOFILE= of the unit
HEAD = """# The service under systemd

Written by `make unit-check`. {version} starts, watches, reloads and stops the unit that `slipstream init` writes. It
runs in a Debian root with its own processes, mounts, network and control group (version 2), as the user `{user}`.

| what | came to |
|---|---|
"""


class Check:
    """One run; `rows` is what the ledger says."""

    def __init__(self, scratch: Path, images: Path) -> None:
        self._scratch, self._images, self._begun = scratch, images, time.monotonic()
        self.rows: list[tuple[str, str]] = []
        self.version = ""

    def say(self, text: str) -> None:
        """What happens now, to who waits."""
        click.echo(f"{time.monotonic() - self._begun:6.0f} s  {text}")

    def run(self) -> None:
        """All of it."""
        builder = Builder(ROOT, self._images, self.say)
        image = builder.image("broker")
        as_root = replace(dockerfile.settings_of(builder.stages, "build"), directory="/")
        root = layers.Root(self._scratch / "root", image.layers, self._scratch / "changes")
        root.mount()
        self.say("systemd, into this root alone")
        within = (
            "apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends systemd"
        )
        builder.run(root, ["/bin/sh", "-c", within], as_root)
        init = f"slipstream init {FOLDER} --name orders --user {USER}"
        more = f"chown -R {USER}: {FOLDER} && cp {FOLDER}/{UNIT} /etc/systemd/system && systemd-analyze verify {UNIT}"
        builder.run(root, ["/bin/sh", "-c", f"{init} && {more}"], as_root)
        self.rows.append(("`systemd-analyze verify`", "exit code 0"))
        with Machine(root, self._scratch) as machine:
            Played(machine, self).all()
        root.unmount()


class Played:
    """What an operator does, one after the other."""

    def __init__(self, machine: Machine, check: Check) -> None:
        self._machine, self._check = machine, check

    def all(self) -> None:
        """In this order."""
        self._boot()
        self._start()
        self._hardened()
        self._reload()
        self._killed()
        self._watched()
        self._stop()
        self._refused()

    def _ctl(self, *words: str) -> str:
        ran = self._machine.run("systemctl", *words)
        assert ran.returncode == 0, (words, ran.stdout, ran.stderr, self._journal())
        return ran.stdout.strip()

    def _shows(self, name: str) -> str:
        return self._ctl("show", "--value", "--property", name, UNIT)

    def _journal(self) -> str:
        return self._machine.run("journalctl", "--no-pager", "--unit", UNIT, "--lines", "60").stdout

    def _row(self, what: str, step: Callable[[], str]) -> None:
        self._check.say(what)
        begun = time.monotonic()
        came_to = step()
        self._check.rows.append((what, f"{came_to}, {time.monotonic() - begun:.1f} s"))
        self._check.say(came_to)

    def _boot(self) -> None:
        states = ("running\n", "degraded\n")
        await_that(
            lambda: self._machine.run("systemctl", "is-system-running").stdout in states, "it has booted", SECONDS, 0.2
        )
        self._check.version = self._ctl("--version").splitlines()[0].partition(" (")[0]
        numbers = self._machine.run("ls", "/proc").stdout.split()
        assert self._machine.run("cat", "/proc/1/comm").stdout == "systemd\n"
        assert len([name for name in numbers if name.isdecimal()]) < 40, "it sees this machine's processes"

    def _start(self) -> None:
        def start() -> str:
            self._ctl("enable", "--now", UNIT)
            assert self._shows("ActiveState") == "active" and self._shows("Type") == "notify"
            said = self._shows("StatusText")
            assert said.startswith("ASYNC_MASTER orders"), said
            return "active once the broker had said READY=1"

        self._row("`systemctl enable --now`", start)
        produced = self._machine.run(
            "sh", "-c", f"seq {MESSAGES} | slipstream produce --store {STORE} --topic a", user=USER
        )
        assert f"{MESSAGES:,} messages acknowledged" in produced.stdout + produced.stderr, produced

    def _hardened(self) -> None:
        pid = self._shows("MainPID")
        status = dict(
            line.split(":\t", 1) for line in self._machine.run("cat", f"/proc/{pid}/status").stdout.splitlines()
        )
        assert status["Uid"].split()[0] == "10911" and status["NoNewPrivs"] == "1", status
        assert {int(status[name], 16) for name in ("CapEff", "CapBnd", "CapPrm")} == {0}, status
        assert int(status["Seccomp"]) == 2
        limits = self._machine.run("cat", f"/proc/{pid}/limits").stdout
        files = layers.files_allowed(FILES)
        assert f"Max open files            {files}" in limits, limits
        for path, is_writable in (("/etc/mine", 0), ("/srv/mine", 0), ("/dev/shm/mine", 1), (f"{FOLDER}/mine", 1)):
            tried = self._machine.run("sh", "-c", f"touch {path} && rm {path}", of=pid)
            assert (tried.returncode == 0) == bool(is_writable), (path, tried)
        assert self._machine.run("ls", "/dev/shm").stdout.startswith("slipstream-"), "shared memory is the machine's"
        self._check.rows.append(
            (
                "user, rights, limits",
                f"uid 10911, no capability, no new privileges, seccomp on, {files:,} files"
                f"{'' if files == FILES else ' (the most that this root may grant)'};"
                " writes only into its folder and `/dev/shm`, where a producer outside the unit reaches it",
            ),
        )

    def _reload(self) -> None:
        def reload() -> str:
            pid = self._shows("MainPID")
            changed = self._machine.run("sh", "-c", f"echo fileReservedTime=48 >> {FILE}")
            assert changed.returncode == 0
            self._ctl("reload", UNIT)
            await_that(
                lambda: "fileReservedTime=48" in self._shows("StatusText"), "it says what was applied", SECONDS, 0.2
            )
            assert self._shows("MainPID") == pid
            return "the same process, `fileReservedTime=48` in its status"

        self._row("`systemctl reload` (SIGHUP)", reload)

    def _comes_back(self, before: str, restarts: int) -> None:
        def is_back() -> bool:
            state = self._shows("ActiveState")
            return state == "active" and self._shows("MainPID") != before and int(self._shows("NRestarts")) == restarts

        await_that(is_back, f"it runs again: {self._journal()}", SECONDS, 0.2)
        counted = self._machine.run("slipstream", "log", "cat", STORE, "--topic", "a", user=USER).stdout.count("\n")
        assert counted == MESSAGES, counted

    def _killed(self) -> None:
        def kill() -> str:
            before = self._shows("MainPID")
            self._ctl("kill", "--signal=KILL", "--kill-who=main", UNIT)
            self._comes_back(before, 1)
            return f"runs again, {MESSAGES:,} messages there"

        self._row("`kill -9` of the supervisor", kill)

    def _watched(self) -> None:
        def stop_turning() -> str:
            folder = f"/etc/systemd/system/{UNIT}.d"
            drop_in = f"mkdir {folder} && printf '{WATCHED}' > {folder}/watched.conf"
            assert self._machine.run("sh", "-c", drop_in).returncode == 0
            self._ctl("daemon-reload")
            self._ctl("restart", UNIT)
            before = self._shows("MainPID")
            beat = self._shows("WatchdogTimestampMonotonic")
            await_that(lambda: self._shows("WatchdogTimestampMonotonic") != beat, "it beats", SECONDS, 0.5)
            assert self._machine.run("sh", "-c", f"kill -STOP {before}").returncode == 0
            await_that(lambda: "Watchdog timeout" in self._journal(), "systemd notices", SECONDS, 0.5)
            self._comes_back(before, 1)
            return f"beats; stopped in its tracks (SIGSTOP) it was ended and runs again, {MESSAGES:,} messages there"

        self._row("watchdog, set to 20 s", stop_turning)

    def _stop(self) -> None:
        def stop() -> str:
            self._ctl("stop", UNIT)
            assert (self._shows("ActiveState"), self._shows("Result")) == ("inactive", "success"), self._journal()
            ended = self._shows("ExecMainCode"), self._shows("ExecMainStatus")
            assert ended in ((EXITED, "0"), ("exited", "0")), (ended, self._journal())
            left = self._machine.run("ls", "/dev/shm").stdout
            assert not left, left
            return "exit code 0, nothing left in `/dev/shm`"

        self._row("`systemctl stop`", stop)

    def _refused(self) -> None:
        def start() -> str:
            assert self._machine.run("sh", "-c", f"echo listenPort=none >> {FILE}").returncode == 0
            refused = self._machine.run("systemctl", "start", UNIT)
            assert refused.returncode != 0
            assert (self._shows("ActiveState"), self._shows("ExecMainStatus")) == ("failed", "2"), self._journal()
            assert self._shows("NRestarts") == "0"
            return "exit code 2, not started again"

        self._row("a file with an error", start)


def _played(scratch: Path, images: Path) -> str:
    """The page of what the unit did."""
    check = Check(scratch, images)
    check.run()
    rows = "".join(f"| {what} | {came_to} |\n" for what, came_to in check.rows)
    return HEAD.format(version=check.version, user=USER) + rows


@ledger_options
def main(ledger: Path | None, images: Path | None) -> None:
    """Build the root, boot it, play, write the ledger."""
    play_in_own_mounts("slipstream-unit-", _played, ledger, images)


if __name__ == "__main__":
    main()
