"""Dockerfile, compose.yaml and what they say to our programs: names that are there, ports and versions that agree."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from engine.settings.config import BrokerRole, entries_of, load
from engine.settings.keys import KEYS
from tests.harness.page_blocks import all_blocks_of
from tools.cli import cli
from tools.dev.packaging import dockerfile
from tools.dev.packaging.composition import UNDERSTOOD, seconds_of
from tools.dev.packaging.dockerfile import DockerfileRefused, settings_of, stages_of
from tools.dev.packaging.image import RELEASES

ROOT = Path(__file__).resolve().parents[4]
STAGES = stages_of((ROOT / "Dockerfile").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
PROPERTIES = sorted((ROOT / "docs" / "containers").glob("*.properties"))
METRICS_PORT = 5557  # by every properties file of a container; else a broker may take another one
OURS_CALLED = re.compile(r"(?:^|(?:master|slave) )slipstream (.+)$")  # on a host, and in a service
USER = "10911:10911"
OURS = ("names", "master", "slave")


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
    names = [stage.name for stage in STAGES]
    assert {stage.base for stage in STAGES if stage.base not in names} <= set(RELEASES)
    copied = {one.flags["from"] for stage in STAGES for one in stage.instructions if "from" in one.flags}
    assert copied <= set(names) and names[-1] == "broker", "the last one is what is built when none is named"


@pytest.mark.parametrize("target", ["broker", "notebook"])
def test_nobody_runs_as_root_and_everybody_can_be_stopped(target: str) -> None:
    settings = settings_of(STAGES, target)
    assert settings.user == USER
    assert settings.stop_signal == "SIGTERM" and settings.entry[:3] == ["tini", "-s", "--"] and settings.health
    assert settings.environment["PATH"].startswith("/opt/slipstream/bin:")


def test_the_image_of_a_broker_runs_existing_commands() -> None:
    settings = settings_of(STAGES, "broker")
    assert settings.entry[-1] == "slipstream"
    assert command_of(settings.command).name == "broker"
    assert command_of(health_words(settings.health)).name == "status"
    assert settings.volumes == ["/data"]
    default = {key.name: key.default for key in KEYS}
    listened = {default["listenPort"], default["listenPort"] - 2, 9876}
    listened |= {default["haListenPort"] or default["listenPort"] + 1, METRICS_PORT}
    assert set(settings.ports) == listened
    texts = [one.rest for stage in STAGES for one in stage.instructions if one.word == "RUN"]
    assert any(text == "slipstream warm" for text in texts), "kernels are compiled when the image is made"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (arg,) = [one.rest for stage in STAGES for one in stage.instructions if one.word == "ARG"]
    assert set(arg.removeprefix("EXTRAS=").split(",")) <= set(extras)
    assert any("[spark,plots]" in text for text in texts) and {"spark", "plots"} <= set(extras)


def test_what_is_copied_is_in_the_context() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no checkout of git")
    context = dockerfile.kept(listed.stdout.splitlines(), (ROOT / ".dockerignore").read_text())
    folders = {path.partition("/")[0] for path in context}
    assert {
        "ipc",
        "store",
        "engine",
        "spark_bridge",
        "tools",
        "slipstream.py",
        "pyproject.toml",
        "README.md",
    } <= folders
    assert not folders & {"tests", ".git", ".ci", ".venv"} and not [path for path in context if "__pycache__" in path]
    for stage in STAGES:
        for one in stage.instructions:
            if one.word == "COPY" and "from" not in one.flags:
                for name in one.words()[:-1]:
                    assert name == "." or name in context, name


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
    assert host in SERVICES and int(port) in settings_of(STAGES, "broker").ports
    host, _colon, port = master["namesrvAddr"].partition(":")
    assert host in SERVICES and port in SERVICES[host]["command"]


@pytest.mark.parametrize("name", OURS)
def test_each_service_has_no_more_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert set(service) <= UNDERSTOOD
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
        assert target in settings_of(STAGES, "broker").command


def test_ports_are_published_to_this_host_alone_and_are_those_of_the_image() -> None:
    for service in SERVICES.values():
        settings = settings_of(STAGES, service["build"]["target"])
        for port in service.get("ports", []):
            host, outer, inner = port.split(":")
            assert host == "127.0.0.1" and outer == inner and int(inner) in settings.ports


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


@pytest.mark.parametrize(
    "text",
    ["RUN true", "FROM debian:12-slim", "FROM debian:12-slim AS a\nADD . .", "FROM debian:12-slim AS a\nRUN true \\"],
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(DockerfileRefused):
        stages_of(text)


def test_instructions_are_read_as_they_are_written() -> None:
    (stage,) = stages_of(
        "# a comment\nFROM debian:12-slim AS a\nENV ONE=1 \\\n    TWO=$ONE\\ 2\n# another\nWORKDIR /x\nWORKDIR y\n"
        'HEALTHCHECK --interval=3s CMD ["a", "b c"]\nCOPY --from=b --chown=1:1 /p /q\nEXPOSE 1 2\nCMD a b\n'
    )
    settings = settings_of([stage], "a")
    assert settings.environment["ONE"] == "1" and settings.directory == "/x/y" and settings.ports == [1, 2]
    assert (settings.health, settings.health_times) == (["a", "b c"], {"interval": "3s"})
    assert settings.command == ["/bin/sh", "-c", "a b"]
    (copy,) = [one for one in stage.instructions if one.word == "COPY"]
    assert (copy.flags, copy.words(), copy.line) == ({"from": "b", "chown": "1:1"}, ["/p", "/q"], 9)


@pytest.mark.parametrize(
    ("path", "is_kept"),
    [("a/b.py", True), ("a/x/b.pyc", False), ("b.py", False), ("a/__pycache__/b", False), ("ab", False)],
)
def test_the_last_line_that_fits_says_what_is_left_out(path: str, is_kept: bool) -> None:
    assert dockerfile.kept([path], "# all\n*\n!a\n**/__pycache__\n**/*.pyc\n") == ([path] if is_kept else [])
