"""Dockerfile, compose.yaml and what they say to our programs: names that are there, ports and versions that agree."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from engine.settings.config import BrokerRole, entries_of, load
from engine.settings.keys import KEYS
from tests.harness.page_blocks import all_blocks_of
from tests.tools.dev.packaging.podman import BASE, FLAGS, ServiceRefused, run_words, seconds_of
from tools.cli import cli

ROOT = Path(__file__).resolve().parents[4]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
PROPERTIES = sorted((ROOT / "docs" / "containers").glob("*.properties"))
METRICS_PORT = 5557  # by every properties file of a container; else a broker may take another one
OURS_CALLED = re.compile(r"(?:^|(?:master|slave) )slipstream (.+)$")  # on a host, and in a service
USER = "10911:10911"
OURS = ("names", "master", "slave")


def stages_of(text: str) -> dict[str, list[tuple[str, str]]]:
    """Each stage's instructions, behind those of the stage on which it stands. hadolint reads the file strictly."""
    stages: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for line in re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines():
        word, _blank, rest = line.partition(" ")
        if word == "FROM":
            base, _as, name = rest.split()
            stages[name] = [*stages.get(base, [(word, base)])]
        elif word:
            stages[name].append((word, rest.strip()))
    return stages


STAGES = stages_of((ROOT / "Dockerfile").read_text())


def said(target: str, word: str) -> list[str]:
    """What instructions of one kind say in a target; the last one holds."""
    return [rest for given, rest in STAGES[target] if given == word]


def listed(target: str, word: str) -> list[str]:
    """What holds of an instruction that is given as a list."""
    (*_before, last) = said(target, word)
    return list(json.loads(last[last.index("[") :]))


def ports_of(target: str) -> set[int]:
    """The ports that a target names."""
    return {int(port) for text in said(target, "EXPOSE") for port in text.split()}


def command_of(words: list[str]) -> click.Command:
    """The command that these words call; that it is there, with these options."""
    command, context = cli, click.Context(cli, info_name="slipstream")
    while isinstance(command, click.Group):
        name, chosen, words = command.resolve_command(context, words)
        assert chosen is not None, name
        command, context = chosen, click.Context(chosen, info_name=name, parent=context)
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known, words
    return command


def health_words(test: list[str]) -> list[str]:
    """What of ours a health command calls."""
    words = test[test.index("-c") + 1].split()
    assert words[0] == "slipstream" and words[-3:] == ["||", "exit", "1"], "an engine knows no other codes than 0 and 1"
    return words[1 : words.index(">")]


def test_stages_stand_on_a_base_that_is_named_by_its_version() -> None:
    bases = {f"docker.io/library/{base}" for name in STAGES for base in said(name, "FROM")}
    assert bases == {BASE}, "podman.py makes it where no registry is reached"
    copied = {match[1] for name in STAGES for text in said(name, "COPY") if (match := re.match("--from=(\\S+) ", text))}
    assert copied <= set(STAGES) and list(STAGES)[-1] == "broker", "the last one is what is built when none is named"


@pytest.mark.parametrize("target", ["broker", "notebook"])
def test_nobody_runs_as_root_and_everybody_can_be_stopped(target: str) -> None:
    assert said(target, "USER")[-1] == USER and said(target, "STOPSIGNAL") == ["SIGTERM"]
    assert listed(target, "ENTRYPOINT")[:3] == ["tini", "-s", "--"] and listed(target, "HEALTHCHECK")
    assert any("PATH=/opt/slipstream/bin:" in text for text in said(target, "ENV"))


def test_the_image_of_a_broker_runs_existing_commands() -> None:
    assert listed("broker", "ENTRYPOINT")[-1] == "slipstream"
    assert command_of(listed("broker", "CMD")).name == "broker"
    assert command_of(health_words(listed("broker", "HEALTHCHECK"))).name == "status"
    assert said("broker", "VOLUME") == ["/data"]
    default = {key.name: key.default for key in KEYS}
    used = {default["listenPort"], default["listenPort"] - 2, 9876}
    used |= {default["haListenPort"] or default["listenPort"] + 1, METRICS_PORT}
    assert ports_of("broker") == used
    texts = said("notebook-build", "RUN")
    assert "slipstream warm" in texts, "kernels are compiled when the image is made"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (arg,) = said("build", "ARG")
    assert set(arg.removeprefix("EXTRAS=").split(",")) <= set(extras)
    assert any("[spark,plots]" in text for text in texts) and {"spark", "plots"} <= set(extras)


def test_what_is_copied_is_in_the_context() -> None:
    first, *others = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    kept = [line.removeprefix("!") for line in others if line.startswith("!")]
    assert first == "*" and {"**/__pycache__", "ipc/carried"} <= {*others}, "sources alone, those that are named"
    assert [name for name in kept if not (ROOT / name).exists()] == []
    assert {"ipc", "store", "engine", "spark_bridge", "tools", "slipstream.py", "pyproject.toml", "README.md"} <= {
        *kept
    }
    copied = {
        name for target in STAGES for text in said(target, "COPY") for name in text.split()[:-1] if "=" not in text
    }
    assert [name for name in copied - {"."} if not any(f"{name}/".startswith(f"{one}/") for one in kept)] == []


def test_the_page_calls_existing_commands() -> None:
    lines = [
        line.partition("  #")[0]
        for one in all_blocks_of("operations.md")
        if one.not_run
        for line in one.text.splitlines()
    ]
    called = [shlex.split(match[1]) for line in lines if (match := OURS_CALLED.search(line))]
    assert [command_of(words).name for words in called] == ["init", "warm", "status", "send"]


@pytest.mark.parametrize("path", PROPERTIES, ids=lambda path: path.stem)
def test_a_broker_takes_its_properties(path: Path, tmp_path: Path) -> None:
    text = path.read_text().replace("master:10912", "127.0.0.1:10912")  # a name of the composition's network
    (tmp_path / "broker.properties").write_text(text)
    config, warnings = load(str(tmp_path / "broker.properties"))
    assert not warnings and config.store_path_root_dir == Path("/data/store")
    assert (config.metrics_host, config.metrics_port) == ("0.0.0.0", METRICS_PORT)
    assert config.broker_role is {"master": BrokerRole.SYNC_MASTER, "slave": BrokerRole.SLAVE}.get(
        path.stem, BrokerRole.ASYNC_MASTER
    )


def test_master_and_slave_are_a_pair() -> None:
    master, slave = (
        {one.key: one.value for one in entries_of(str(ROOT / "docs" / "containers" / f"{name}.properties"))}
        for name in ("master", "slave")
    )
    for key in ("brokerClusterName", "brokerName", "namesrvAddr", "storePathRootDir"):
        assert master[key] == slave[key]
    host, _colon, port = slave["haMasterAddress"].partition(":")
    assert host in SERVICES and int(port) in ports_of("broker")
    host, _colon, port = master["namesrvAddr"].partition(":")
    assert host in SERVICES and port in SERVICES[host]["command"]


@pytest.mark.parametrize("name", OURS)
def test_each_service_has_no_more_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert set(service) <= {*FLAGS, "image", "command"}, "make image-check understands it"
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["tmpfs"] == ["/tmp"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["ulimits"]["nofile"] == {"soft": 1048576, "hard": 1048576}
    assert seconds_of(service["stop_grace_period"]) == 300
    mounted = {volume.split(":")[1] for volume in service["volumes"]}
    assert {"/data", "/var/cache/slipstream"} <= mounted
    named = {volume.split(":")[0] for volume in service["volumes"] if not volume.startswith(".")}
    assert named <= set(COMPOSE["volumes"])
    if "command" in service:
        command_of(service["command"])
    if "healthcheck" in service:
        command_of(health_words(service["healthcheck"]["test"]))


def test_files_that_are_mounted_are_there() -> None:
    volumes = [volume for service in SERVICES.values() for volume in service["volumes"] if volume.startswith(".")]
    assert volumes
    for volume in volumes:
        source, target, mode = volume.split(":")
        assert (ROOT / source).is_file() and mode == "ro"
        assert target in listed("broker", "CMD")


def test_ports_are_published_to_this_host_alone_and_are_those_of_the_image() -> None:
    for service in SERVICES.values():
        for port in service.get("ports", []):
            host, outer, inner = port.split(":")
            assert host == "127.0.0.1" and outer == inner and int(inner) in ports_of(service["build"]["target"])


def test_the_notebook_reads_in_place_and_may_not_write() -> None:
    notebook, master = SERVICES["notebook"], SERVICES["master"]
    assert notebook["pid"] == notebook["ipc"] == "service:master" and master["ipc"] == "shareable"
    assert "master:/data:ro" in notebook["volumes"] and "master:/data" in master["volumes"]
    assert set(notebook["depends_on"]) == {"master"}


def test_images_have_the_packages_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {service["image"].partition(":")[2] for service in SERVICES.values()} == {version}


def test_the_notebooks_lock_adds_to_the_projects() -> None:
    own, theirs = (
        dict(line.split("==") for line in (ROOT / path).read_text().splitlines())
        for path in ("requirements.lock", "docs/containers/notebook.lock")
    )
    assert "jupyterlab" in theirs and not set(own) & set(theirs)


def test_podman_is_told_what_a_service_says() -> None:
    mounted = {"type": "bind", "source": "/a", "target": "/b", "read_only": True}
    words = run_words(
        {
            "image": "one:1", "command": ["a", "b"], "entrypoint": None, "networks": {"default": None},
            "healthcheck": {"test": ["CMD", "sh", "-c", "a || b"], "start_period": "2m0s"}, "volumes": [mounted],
            "ports": [{"host_ip": "127.0.0.1", "target": 1, "published": "1"}], "stop_grace_period": "1m30s",
            "pid": "service:x",
        }
    )  # fmt: skip
    assert words == [
        "--network=slipstream_default", '--health-cmd=["sh", "-c", "a || b"]', "--health-start-period=2m0s",
        "--volume=/a:/b:ro", "--publish=127.0.0.1::1", "--stop-timeout=90", "--pid=container:x", "one:1", "a", "b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "service",
    [{"privileged": True}, {"healthcheck": {"test": ["CMD-SHELL", "true"]}}, {"volumes": [{"type": "tmpfs"}]}],
    ids=lambda service: next(iter(service)),
)
def test_what_is_not_understood_is_refused(service: dict[str, Any]) -> None:
    with pytest.raises(ServiceRefused):
        run_words({"image": "one:1", **service})
