"""The unit of `slipstream init` under a real systemd, and what came of it as a page in docs/.

    python -m tests.tools.dev.packaging.unit_check [--ledger docs/service.md]

Takes root and Podman. systemd is the first process of a container: the Dockerfile's broker, with systemd added. It may
neither restart the machine, nor load modules, nor set the clock, and has no network.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from tests.harness.conditions import await_that
from tests.tools.dev.packaging.podman import FILES, Podman, checked, files_allowed

UNIT, FOLDER, USER = "slipstream.service", "/srv/orders", "slipstream"
STORE, FILE = f"{FOLDER}/store", f"{FOLDER}/broker.properties"
SECONDS = 900.0
EXITED = "1"  # CLD_EXITED
WATCHED = "[Service]\nWatchdogSec=20s\n"
MESSAGES = 1000
BROKER, SYSTEM = "localhost/slipstream-broker", "localhost/slipstream-unit"
SYSTEM_FILE = f"""FROM {BROKER}
USER root
RUN apt-get update && apt-get install --yes --no-install-recommends systemd
RUN slipstream init {FOLDER} --name orders --user {USER} \\
 && chown -R {USER}: {FOLDER} && cp {FOLDER}/{UNIT} /etc/systemd/system && systemd-analyze verify {UNIT}
ENTRYPOINT ["/lib/systemd/systemd", "--log-target=journal", "--show-status=0"]
CMD []
"""
NOT_ALLOWED = "SYS_BOOT,SYS_MODULE,SYS_RAWIO,SYS_TIME,SYSLOG"
# systemd makes mounts and filters for its units, and reads all of /proc
RIGHTS = (
    "--cap-add=ALL",
    f"--cap-drop={NOT_ALLOWED}",
    "--security-opt=seccomp=unconfined",
    "--security-opt=unmask=ALL",
)
HEAD = """# The service under systemd

Written by `make unit-check`. {version} starts, watches, reloads and stops the unit that `slipstream init` writes.
systemd runs in a Podman container with Debian's files, as the container's first process, with control groups of
version {groups}. The unit's user is `{user}`.

| what | came to |
|---|---|
"""


class Played:
    """What an operator does, one after the other; `rows` is what the ledger says."""

    def __init__(self, podman: Podman) -> None:
        self._podman = podman
        self.rows = [("`systemd-analyze verify`", "exit code 0")]
        self.version = self.groups = ""

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

    def _run(self, *command: str, user: str = "", of: str = "1") -> subprocess.CompletedProcess[str]:
        """A command in it, as root or as somebody; with the mounts of one of its processes."""
        there = ["nsenter", "--target", of, "--mount"] if of != "1" else []
        return self._podman.within(UNIT, *there, *command, user=user)

    def _ctl(self, *words: str) -> str:
        ran = self._run("systemctl", *words)
        assert ran.returncode == 0, (words, ran.stdout, ran.stderr, self._journal())
        return ran.stdout.strip()

    def _shows(self, name: str) -> str:
        return self._ctl("show", "--value", "--property", name, UNIT)

    def _journal(self) -> str:
        return self._run("journalctl", "--no-pager", "--unit", UNIT, "--lines", "60").stdout

    def _row(self, what: str, step: Callable[[], str]) -> None:
        self._podman.say(what)
        begun = time.monotonic()
        came_to = step()
        self.rows.append((what, f"{came_to}, {time.monotonic() - begun:.1f} s"))
        self._podman.say(came_to)

    def _boot(self) -> None:
        states = ("running\n", "degraded\n")
        await_that(lambda: self._run("systemctl", "is-system-running").stdout in states, "it has booted", SECONDS, 0.2)
        self.version = self._ctl("--version").splitlines()[0].partition(" (")[0]
        is_second = self._run("stat", "--file-system", "--format=%T", "/sys/fs/cgroup").stdout == "cgroup2fs\n"
        self.groups = "2" if is_second else "1"
        numbers = self._run("ls", "/proc").stdout.split()
        assert self._run("cat", "/proc/1/comm").stdout == "systemd\n"
        assert len([name for name in numbers if name.isdecimal()]) < 40, "it sees this machine's processes"

    def _start(self) -> None:
        def start() -> str:
            self._ctl("enable", "--now", UNIT)
            assert self._shows("ActiveState") == "active" and self._shows("Type") == "notify"
            said = self._shows("StatusText")
            assert said.startswith("ASYNC_MASTER orders"), said
            return "active once the broker had said READY=1"

        self._row("`systemctl enable --now`", start)
        produced = self._run("sh", "-c", f"seq {MESSAGES} | slipstream produce --store {STORE} --topic a", user=USER)
        assert f"{MESSAGES:,} messages acknowledged" in produced.stdout + produced.stderr, produced

    def _hardened(self) -> None:
        pid = self._shows("MainPID")
        status = dict(line.split(":\t", 1) for line in self._run("cat", f"/proc/{pid}/status").stdout.splitlines())
        assert status["Uid"].split()[0] == "10911" and status["NoNewPrivs"] == "1", status
        assert {int(status[name], 16) for name in ("CapEff", "CapBnd", "CapPrm")} == {0}, status
        assert int(status["Seccomp"]) == 2
        limits = self._run("cat", f"/proc/{pid}/limits").stdout
        files = files_allowed()
        assert f"Max open files            {files}" in limits, limits
        for path, is_writable in (("/etc/mine", 0), ("/srv/mine", 0), ("/dev/shm/mine", 1), (f"{FOLDER}/mine", 1)):
            tried = self._run("sh", "-c", f"touch {path} && rm {path}", of=pid)
            assert (tried.returncode == 0) == bool(is_writable), (path, tried)
        assert self._run("ls", "/dev/shm").stdout.startswith("slipstream-"), "shared memory is the machine's"
        self.rows.append(
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
            changed = self._run("sh", "-c", f"echo fileReservedTime=48 >> {FILE}")
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
        counted = self._run("slipstream", "log", "cat", STORE, "--topic", "a", user=USER).stdout.count("\n")
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
            assert self._run("sh", "-c", drop_in).returncode == 0
            self._ctl("daemon-reload")
            self._ctl("restart", UNIT)
            before = self._shows("MainPID")
            beat = self._shows("WatchdogTimestampMonotonic")
            await_that(lambda: self._shows("WatchdogTimestampMonotonic") != beat, "it beats", SECONDS, 0.5)
            assert self._run("sh", "-c", f"kill -STOP {before}").returncode == 0
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
            left = self._run("ls", "/dev/shm").stdout
            assert not left, left
            return "exit code 0, nothing left in `/dev/shm`"

        self._row("`systemctl stop`", stop)

    def _refused(self) -> None:
        def start() -> str:
            assert self._run("sh", "-c", f"echo listenPort=none >> {FILE}").returncode == 0
            refused = self._run("systemctl", "start", UNIT)
            assert refused.returncode != 0
            assert (self._shows("ActiveState"), self._shows("ExecMainStatus")) == ("failed", "2"), self._journal()
            assert self._shows("NRestarts") == "0"
            return "exit code 2, not started again"

        self._row("a file with an error", start)


def page_of(podman: Podman) -> str:
    """Build the root, boot it, play, write the ledger."""
    podman.base()
    podman.build(BROKER, "--target", "broker")
    (podman.scratch / "Systemfile").write_text(SYSTEM_FILE)
    podman.build(SYSTEM, "--file", str(podman.scratch / "Systemfile"))
    given = ("--systemd=always", "--network=none", "--shm-size=1g", "--workdir=/", *RIGHTS)
    podman.start(UNIT, *given, SYSTEM)
    played = Played(podman)
    played.all()
    rows = "".join(f"| {what} | {came_to} |\n" for what, came_to in played.rows)
    return HEAD.format(version=played.version, groups=played.groups, user=USER) + rows


if __name__ == "__main__":
    checked(page_of)()
