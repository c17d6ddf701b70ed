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
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from engine.producer import Producer
from tests.harness import command_line
from tests.harness.printed import SILENT, Line, leaves, lines_on
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
        yield lines_on(broker, scratch)


def schema(name: str) -> dict[str, Any]:
    return dict(json.loads((SCHEMAS / f"{name}.schema.json").read_text()))


def test_every_command_is_in_these_tests_or_named_with_a_reason(lines: list[Line]) -> None:
    tested = {line.path for line in lines}
    silent = {path for path in leaves() if path in SILENT or path.split()[0] in SILENT}
    assert not tested & silent
    assert set(leaves()) == tested | silent


def test_json_is_as_its_schema_says(lines: list[Line]) -> None:
    for line in lines:
        if not line.schemas:
            continue
        ran = command_line.run(*line.arguments, "--json")
        assert ran.exit_code == 0, (line, ran.stderr)
        objects = [json.loads(text) for text in ran.stdout.splitlines()]
        assert {each["schema"] for each in objects} == {f"slipstream.{name}/1" for name in line.schemas}, line
        for each in objects:
            jsonschema.validate(each, schema(each["schema"].split("/")[0].removeprefix("slipstream.")))


def test_findings_have_a_schema_too(tmp_path: Path) -> None:
    from tests.harness.dispatched import small_store

    log = small_store(tmp_path / "store")
    log.flip(log.records[3].offset + 90)
    ran = command_line.run("log", "verify", "--json", log.root)
    kinds = Counter(json.loads(line)["schema"] for line in ran.stdout.splitlines())
    assert (ran.exit_code, kinds["slipstream.log.verify/1"]) == (1, 1)
    for each in map(json.loads, ran.stdout.splitlines()):
        jsonschema.validate(each, schema(each["schema"].split("/")[0].removeprefix("slipstream.")))
    assert kinds["slipstream.log.verify.finding/1"] >= 1


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


def test_a_terminal_gets_colours_unless_somebody_wants_none(
    lines: list[Line], monkeypatch: pytest.MonkeyPatch
) -> None:
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
