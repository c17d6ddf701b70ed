"""Ports for brokers on this machine: what one process is given, no other one is while it lives."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tools.common import local_broker

ASKING = """
import sys
from tools.common import local_broker

local_broker.PORTS = range(int(sys.argv[1]), int(sys.argv[1]) + 4, 4)
print(local_broker.free_port())
"""


def test_free_ports_are_no_neighbours_and_not_the_kernels() -> None:
    ports = [local_broker.free_port() for _ in range(local_broker.GIVEN_MAX)]
    spans = [set(range(port - 2, port + 2)) for port in ports]
    assert len(set.union(*spans)) == 4 * len(ports)
    assert max(ports) < 32_768


def test_another_process_is_not_given_what_this_one_was() -> None:
    """Though nobody listens there: its broker may be on its way, or killed and about to come again."""
    first = local_broker.free_port() - 2

    def asked() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", ASKING, str(first)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    refused = asked()
    assert refused.returncode == 1 and "no four consecutive free ports" in refused.stderr
    local_broker._given.pop().close()
    assert asked().stdout == f"{first + 2}\n"


def test_a_port_with_a_user_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    port = local_broker.free_port()
    monkeypatch.setattr(local_broker, "PORTS", range(port - 2, port + 2, 4))
    local_broker._given.pop().close()
    with socket.create_server(("127.0.0.1", port + 1)), pytest.raises(RuntimeError, match="no four consecutive"):
        local_broker.free_port()
    assert local_broker.free_port() == port
