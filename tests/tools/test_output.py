"""What commands print: JSON by its schema, and no control codes where nobody would see colours, or wants none."""

from __future__ import annotations

import json
import os
import pty
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from engine.monitoring.client_status import FrontStatus
from engine.monitoring.findings import NO_SLAVE, NOT_FINISHED, TLS_TEST_MODE
from engine.monitoring.ha_status import ClientStatus, ConnectionStatus, EndedStatus, HaStatus, ha_status
from engine.monitoring.pair import COPY, NO_TABLES, TWO_MASTERS
from engine.monitoring.problems import FILES_REMOVED, STUCK, TABLE, UNSERVED
from engine.monitoring.status import ProcessStatus, PutStatus, Status
from engine.producer import Producer
from engine.protocol.ha.wire import CloseReason, ReasonCode
from engine.shared_memory.cursors import BrokerCounters, BrokerState
from store.compat import LINES
from store.reading import extent
from store.reading.history import History
from tests.harness import command_line
from tests.harness.conditions import await_that
from tests.harness.printed import NO_JSON, SILENT, Line, command_of, leaves, lines_on
from tools.cli import run_command
from tools.common.local_broker import LocalBroker

SCHEMAS = Path(__file__).parents[2] / "docs" / "json"
COLOUR = re.compile(r"\x1b\[[0-9;]*?(3[0-8]|4[0-8]|9[0-7]|10[0-7])[0-9;]*m")


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Line]]:
    scratch = tmp_path_factory.mktemp("output")
    with LocalBroker(scratch / "broker", mappedFileSizeCommitLog=1 << 20) as broker:
        with Producer(broker.store, timeout=60.0) as producer:
            for _ in range(20):
                producer.send("T", b"x" * 30_000, keys="k", tags="t")
            producer.send("T", b"\xff\x00")
            for _ in range(40):  # more than all lines here consume: what they send is in its queue a moment later
                producer.send("printed", b"before")
        counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
        await_that(
            lambda: counters.reput_from_offset.read() == counters.max_physical_offset.read(), "all is dispatched"
        )
        yield lines_on(broker, scratch)


def schema(name: str) -> dict[str, Any]:
    return dict(json.loads((SCHEMAS / f"{name}.schema.json").read_text()))


def _closed(part: Any) -> Any:
    """The schema, taking no key that it does not describe. The files themselves leave room for keys to come."""
    if isinstance(part, list):
        return [_closed(each) for each in part]
    if not isinstance(part, dict):
        return part
    inner = {key: _closed(value) for key, value in part.items()}
    return {"additionalProperties": False, **inner} if "properties" in part and "type" in part else inner


def files_beside() -> Registry[Any]:
    """What `$ref` finds: the other files, by their names."""
    names = (file.name.removesuffix(".schema.json") for file in SCHEMAS.glob("*.schema.json"))
    pairs = [(f"{name}.schema.json", DRAFT202012.create_resource(_closed(schema(name)))) for name in names]
    return Registry().with_resources(pairs)


def as_said(printed: dict[str, Any], beside: Registry[Any]) -> None:
    """Raises ValidationError: it is not as its schema says, or has a key that is not described there."""
    name = printed["schema"].split("/")[0].removeprefix("slipstream.")
    jsonschema.Draft202012Validator(_closed(schema(name)), registry=beside).validate(printed)


def test_every_command_is_in_these_tests_or_named_with_a_reason(lines: list[Line]) -> None:
    tested = {line.path for line in lines}
    silent = {path for path in leaves() if path in SILENT or path.split()[0] in SILENT}
    assert not tested & silent
    assert set(leaves()) == tested | silent


def _has_json(path: str) -> bool:
    """By the declaration: the flag, or the value of `-o`."""
    command = command_of(path.split())
    assert command is not None
    options = [one for one in command.params if isinstance(one, click.Option)]
    flags = [one for one in options if "--json" in one.opts and one.is_flag]
    forms = [one for one in options if isinstance(one.type, click.Choice) and "json" in one.type.choices]
    return bool(flags or forms)


def test_every_command_that_has_no_json_is_named_with_a_reason() -> None:
    assert {path for path in leaves() if not _has_json(path)} == set(NO_JSON)


def test_json_is_as_its_schema_says(lines: list[Line]) -> None:
    beside = files_beside()
    for line in lines:
        if not line.schemas:
            continue
        ran = command_line.run(*line.arguments, "--json")
        assert ran.exit_code == 0, (line, ran.stderr)
        objects = [json.loads(text) for text in ran.stdout.splitlines()]
        assert {each["schema"] for each in objects} == {f"slipstream.{name}/1" for name in line.schemas}, line
        for each in objects:
            as_said(each, beside)


def test_findings_have_a_schema_too(tmp_path: Path) -> None:
    beside = files_beside()
    from tests.harness.dispatched import small_store

    log = small_store(tmp_path / "store")
    log.flip(log.records[3].offset + 90)
    ran = command_line.run("log", "verify", "--json", log.root)
    kinds = Counter(json.loads(line)["schema"] for line in ran.stdout.splitlines())
    assert (ran.exit_code, kinds["slipstream.log.verify/1"]) == (1, 1)
    for each in map(json.loads, ran.stdout.splitlines()):
        as_said(each, beside)
    assert kinds["slipstream.log.verify.finding/1"] >= 1


def printed_by(*arguments: object, ends_with: int = 0) -> list[dict[str, Any]]:
    """The objects that a command printed, each as its schema says."""
    ran = command_line.run(*arguments)
    assert ran.exit_code == ends_with, ran.output
    objects, beside = [json.loads(line) for line in ran.stdout.splitlines()], files_beside()
    for each in objects:
        as_said(each, beside)
    return objects


def test_a_repair_says_each_range_and_the_sums(tmp_path: Path) -> None:
    from tests.harness.dispatched import copy_of, small_store

    log = small_store(tmp_path / "store")
    other = copy_of(log, tmp_path / "other")
    log.flip(log.records[10].offset + 90)
    planned, _sums = printed_by("log", "repair", "--json", "--dry-run", "--from", other, log.root, ends_with=1)
    repaired, sums = printed_by("log", "repair", "--json", "--from", other, log.root)
    assert repaired == planned
    assert (repaired["start"], repaired["end"]) == (log.records[10].offset, log.records[11].offset)
    assert (sums["repaired"], sums["left"], sums["dryRun"], sums["finished"]) == (1, 0, False, None)
    at = log.records[20].offset
    (cut,) = printed_by("log", "repair", "--json", "--cut", at, log.root)
    assert (cut["offset"], cut["dryRun"], cut["records"]) == (at, False, len(log.records) - 20)
    for segment in log.directory.commitlog.iterdir():
        segment.unlink()
    (gone,) = printed_by("log", "repair", "--json", "--forget-missing", log.root)
    assert "consumequeue/topic0" in gone["removed"] and "has entries" in gone["missing"]


def test_what_writes_a_file_says_so_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.harness.dispatched import small_store

    log = small_store(tmp_path / "store")
    (made,) = printed_by("init", "--json", tmp_path / "new")
    assert Path(made["properties"]).is_file() and Path(made["unit"]).is_file()
    (exported,) = printed_by("log", "export", "-o", "json", "--json", tmp_path / "out", log.root)
    assert exported["messages"] == len((tmp_path / "out").read_text().splitlines()) > 0
    (bundled,) = printed_by("debug", "bundle", "--json", "-o", tmp_path / "bundle.tar.gz", "--seconds", "1", log.root)
    assert Path(bundled["file"]).is_file() and bundled["parts"]
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    (tmp_path / "kernels").mkdir()
    assert printed_by("warm", "--remove", "--json") == [
        {"schema": "slipstream.warm/1", "removed": 0, "kept": None, "gains": None}
    ]


def _leaves(part: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything that a schema describes, by its path, but what stands for a part of it or of another."""
    if "$ref" in part or "const" in part:
        return
    yield path, part
    for name, below in {**part.get("properties", {}), **part.get("$defs", {})}.items():
        yield from _leaves(below, f"{path}.{name}")
    if "items" in part and part["items"].get("type") == "object":
        yield from _leaves(part["items"], f"{path}[]")


@pytest.mark.parametrize("name", ["status", "ha.status"])
def test_every_key_of_the_status_is_described_with_its_type(name: str) -> None:
    for path, part in _leaves(schema(name), name):
        assert part.get("type") and part.get("description"), path
        if "object" in part["type"]:
            assert "properties" in part or "additionalProperties" in part, path


def test_the_status_is_described_as_it_is_made() -> None:
    of, parts = schema("status")["properties"], schema("ha.status")["$defs"]
    for made, described in (
        (Status, of), (HaStatus, schema("ha.status")["properties"]), (ConnectionStatus, parts["replica"]["properties"]),
        (EndedStatus, parts["gone"]["properties"]), (ClientStatus, parts["client"]["properties"]),
        (History, parts["history"]["properties"]), (PutStatus, of["puts"]["properties"]),
        (ProcessStatus, of["processes"]["items"]["properties"]), (FrontStatus, of["fronts"]["items"]["properties"]),
    ):  # fmt: skip
        assert {field.name for field in fields(made)} == set(described) - {"schema"}, made
    assert parts["reasonCode"]["enum"] == [code.value for code in ReasonCode]
    assert parts["client"]["properties"]["reason"]["enum"] == [reason.value for reason in CloseReason]
    assert parts["gone"]["properties"]["close_reason"]["enum"] == [reason.name for reason in CloseReason if reason]
    reasons = set(parts["findings"]["items"]["properties"]["reason"]["enum"])
    of_its_own = {NO_SLAVE, NOT_FINISHED, TLS_TEST_MODE, TWO_MASTERS, NO_TABLES, COPY, STUCK, FILES_REMOVED, TABLE}
    assert reasons >= {*ReasonCode, *of_its_own, UNSERVED}
    assert schema("ha.status")["properties"]["compat"]["enum"] == list(LINES)
    assert parts["state"]["enum"] == [*(state.name for state in BrokerState), "UNKNOWN"]


def test_a_pair_and_what_becomes_of_it_are_as_the_schemas_say(tmp_path: Path) -> None:
    same = {"brokerName": "pair", "mappedFileSizeCommitLog": 1 << 20, "haReconnectInterval": 100,
            "slaveTimeout": 120_000, "haHousekeepingInterval": 120_000}  # fmt: skip
    with (
        LocalBroker(tmp_path / "a", brokerRole="SYNC_MASTER", **same) as a,
        LocalBroker(tmp_path / "b", brokerRole="SLAVE", brokerId=1, haMasterAddress=a.ha_address, **same) as b,
    ):
        await_that(lambda: ha_status(a.store).in_sync_slaves, "the slave is in sync")
        with Producer(a.store, timeout=60.0) as producer:
            producer.send("T", b"x")
        for command in (("status",), ("ha", "status")):
            (of_master,), (of_slave,) = (printed_by(*command, "--json", one.store) for one in (a, b))
            assert (of_master["client"], of_slave["client"]["state"]) == (None, "TRANSFER")
        assert [one["state"] for one in of_master["replicas"]] == ["TRANSFER"]
        (promoted,) = printed_by("promote", "--json", "--switch", b.store)
        assert (promoted["running"], promoted["epoch"], promoted["broker"]) == (True, 1, "pair:1")
        assert promoted["steppedDown"] and promoted["oldMaster"] == f"127.0.0.1:{a.port}"
        (demoted,) = printed_by("demote", "--json", a.store, "--master", b.ha_address)
        assert (demoted["role"], demoted["master"], demoted["diverged"]) == ("SLAVE", b.ha_address, None)
        await_that(lambda: ha_status(b.store).in_sync_slaves, "the old master follows")
        a.stop()
        await_that(lambda: not ha_status(b.store).replicas and ha_status(b.store).gone, "it is gone")
        printed_by("status", "--json", b.store, ends_with=1)
        (left,) = printed_by("ha", "status", "--json", b.store, ends_with=1)
        assert left["gone"] and left["ended"]


def test_schemas_are_sound_and_listed() -> None:
    listed = (SCHEMAS / "README.md").read_text()
    files = sorted(SCHEMAS.glob("*.schema.json"))
    assert files
    for file in files:
        value = json.loads(file.read_text())
        jsonschema.Draft202012Validator.check_schema(value)
        name = file.name.removesuffix(".schema.json")
        assert value["properties"]["schema"]["const"] == f"slipstream.{name}/1" and f"({file.name})" in listed
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"schema": f"slipstream.{name}/1"}, value)


def test_nothing_that_is_no_terminal_gets_control_codes(lines: list[Line], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "CLICOLOR_FORCE"):
        monkeypatch.setenv(name, "1")
    for line in lines:
        ran = command_line.run(*line.arguments)
        assert "\x1b" not in ran.output, line


def on_terminal(arguments: tuple[str, ...]) -> str:
    """What the command writes to a terminal that is its standard output and error."""
    master, slave = pty.openpty()
    seen: list[bytes] = []
    reader = threading.Thread(target=_read_all, args=(master, seen))
    reader.start()
    try:
        with os.fdopen(slave, "w") as screen, redirect_stdout(screen), redirect_stderr(screen):
            assert run_command(list(arguments)) in (0, 1)
    finally:
        reader.join()
        os.close(master)
    return b"".join(seen).decode(errors="replace")


def _read_all(master: int, seen: list[bytes]) -> None:
    with suppress(OSError):  # its other end is closed
        while part := os.read(master, 65536):
            seen.append(part)


def test_a_terminal_gets_colours_unless_no_color_is_set(lines: list[Line], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    doctor = next(line for line in lines if line.path == "doctor")
    assert COLOUR.search(on_terminal(doctor.arguments))
    monkeypatch.setenv("NO_COLOR", "1")
    for line in lines:
        if line.path != "log cat":
            assert not COLOUR.search(on_terminal(line.arguments)), line
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in on_terminal(doctor.arguments)
    assert not sys.stdout.isatty()
