"""`slipstream web` as it is typed: what it refuses to start with, in a line, and how it ends."""

from __future__ import annotations

import signal
import socket
import tomllib
from pathlib import Path

import pytest

from ipc import extras
from tests.harness import command_line
from tests.harness.logs import SmallLog
from tests.harness.served_console import STOP_SECONDS, ServedConsole
from tools.web.pages import STATIC


@pytest.fixture
def store(tmp_path: Path) -> Path:
    log = SmallLog(tmp_path / "store")
    log.append("orders", b"one")
    return log.root


def test_an_address_that_others_reach_needs_a_word_more(store: Path) -> None:
    ran = command_line.run("web", store, "--host", "0.0.0.0")
    assert ran.exit_code == 2 and ran.stderr.startswith("slipstream: WEB: --host 0.0.0.0") and "--expose" in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert command_line.run("web", store, "--name", "console.example").exit_code == 2


def test_what_is_no_store_or_too_many_of_them_is_said(store: Path, tmp_path: Path) -> None:
    assert command_line.run("web").exit_code == 2
    ran = command_line.run("web", tmp_path / "nowhere")
    assert ran.exit_code == 2 and "NOT_A_STORE" in ran.stderr
    assert "at most 16" in command_line.run("web", *[store] * 17).stderr


def test_a_port_that_is_taken_is_said(store: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ran = command_line.run("web", store, "--port", taken.getsockname()[1])
    assert ran.exit_code == 2 and "Address already in use" in ran.stderr and "--port" in ran.stderr


def test_a_missing_extra_is_one_line(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "uvicorn" else object())
    ran = command_line.run("web", store)
    assert ran.exit_code == 2 and ran.stderr.count("\n") == 1
    assert "EXTRA_MISSING" in ran.stderr and "uvicorn" in ran.stderr and "[web]" in ran.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_console_ends_by_a_signal_also_with_a_live_page_open(store: Path, number: signal.Signals) -> None:
    with ServedConsole(store) as console:
        live = console.connection()
        live.request("GET", "/events/pipeline", headers={"authorization": f"Bearer {console.token}"})
        response = live.getresponse()
        assert response.status == 200 and response.readline().startswith(b"retry:")
        console.process.send_signal(number)
        code = console.process.wait(STOP_SECONDS)
        live.close()
        assert code == (0 if number == signal.SIGINT else -number)
        told = console.process.stderr.read()
        assert "Traceback" not in told and "INTERRUPTED" not in told


def test_the_token_is_another_one_each_time(store: Path) -> None:
    with ServedConsole(store) as one, ServedConsole(store) as other:
        assert one.token != other.token and len(one.token) >= 40
        assert other.ask("/api/stores", token=False, authorization=f"Bearer {one.token}").status == 401


def test_every_file_of_a_page_is_data_of_the_package() -> None:
    root = Path(__file__).parents[3]
    patterns = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    packed = {path for pattern in patterns for path in STATIC.parent.glob(pattern) if path.is_file()}
    assert {path for path in STATIC.rglob("*") if path.is_file()} <= packed
