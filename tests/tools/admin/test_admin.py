"""`slipstream admin` without a broker: what it says to wrong arguments and of name servers that are not there.

With real brokers: tests/interop/test_name_server.py.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import RemotingCommand, encode
from tests.tools.run.test_namesrv import ask, running
from tools.admin.commands import admin, as_text
from tools.cli import run_command


def test_names_of_strangers_give_a_terminal_no_orders() -> None:
    hostile = "a\x1b[2Jb\x9bc\u202ed"
    for found in ([{"topic": hostile}], {hostile: hostile}, [hostile], hostile):
        shown = as_text(found).replace("\n", "")
        assert shown.isprintable() and "a\\x1b[2Jb\\x9bc\\u202ed" in shown


def test_nothing_is_imported_that_makes_it_slow() -> None:
    loaded = "import sys, tools.cli, tools.admin.commands; print(*sorted(sys.modules))"
    names = subprocess.run([sys.executable, "-c", loaded], check=True, capture_output=True, text=True).stdout.split()
    assert not {"numpy", "numba", "rich", "pyarrow", "pyspark", "psutil"} & set(names)


@pytest.mark.parametrize("address", ["here", "here:", ":9876", "here:port"])
def test_an_invalid_address_is_reported(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["admin", "clusterList", "-n", address]) == 3
    assert f"{address}: not an address of the form host:port" in capsys.readouterr().err


@pytest.mark.broker
def test_the_client_asks_the_first_name_server_that_answers(
    tmp_path: Path, free_port: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"clusterName": "c", "brokerName": "a", "brokerId": "1", "brokerAddr": "127.0.0.1:9", "haServerAddr": "h:2"}
    with running(tmp_path) as port, socket.create_connection(("127.0.0.1", port), timeout=120) as broker:
        broker.sendall(encode(RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=names)))
        assert broker.recv(4096)
        both = f"127.0.0.1:{free_port()};127.0.0.1:{port}"
        assert run_command(["admin", "clusterList", "-n", both, "-o", "json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["Broker Name"], row["BID"], row["Version"]) == ("a", 1, "")
        assert run_command(["admin", "updateTopic", "-n", both, "-c", "c", "-t", "x"]) == 2
        assert "cluster 'c' has no master" in capsys.readouterr().err
        assert ask(port, RequestCode.GET_BROKER_CLUSTER_INFO).code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["clusterList"], 2, "give -n host:port"),
        (["clusterList", "-n", "127.0.0.1:1"], 3, "127.0.0.1:1"),
        (["clusterList", "-n", "nonsense"], 3, "nonsense"),
        (["topicRoute", "-n", "127.0.0.1:1"], 2, "--topic"),
        (["brokerStatus", "-n", "127.0.0.1:1"], 2, "give -b"),
        (["updateTopic", "-t", "x", "-p", "5"], 2, "'5' is not one of"),
        (["clusterLst"], 2, "No such command"),
    ],
)
def test_wrong_arguments_and_missing_peers_are_reported_in_a_line(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert run_command(["admin", *arguments]) == code
    assert said in capsys.readouterr().err


def test_every_command_explains_itself() -> None:
    assert len(admin.commands) == 9
    for name in admin.commands:
        result = CliRunner().invoke(admin, [name, "--help"])
        assert result.exit_code == 0 and "--namesrvAddr" in result.output


def test_rows_mappings_and_lists_as_text() -> None:
    assert as_text([{"A": 1, "Long": "x"}, {"A": 22, "Long": ["y"]}]) == '#A  #Long\n1   x\n22  ["y"]'
    assert as_text({"key": "value"}).split() == ["key", "=", "value"]
    assert as_text(["a", "b"]) == "a\nb"
