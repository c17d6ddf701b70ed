"""A store read by Java's Flight client, as Maven has it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from spark_bridge.flight.request import ScanRequest
from spark_bridge.flight.server import FlightServer
from tests.interop.jars import Jars
from tests.spark_bridge.flights import TOKEN, rows_in_place, served
from tests.spark_bridge.stores import unpack_golden

HERE = Path(__file__).parent / "java"
VERSION = "18.3.0"
JARS = Jars(f"flight-{VERSION}", VERSION, HERE / "pom.xml", (f"flight-core-{VERSION}.jar",))
OPENED = "--add-opens=java.base/java.nio=ALL-UNNAMED"
SECONDS = 300
pytestmark = pytest.mark.interop


def asked(server: FlightServer, token: str, request: bytes) -> list[str]:
    """What the program prints."""
    class_path = JARS.class_path([HERE / "ReadFlight.java"])
    command = ["java", OPENED, "-cp", class_path, "ReadFlight", "127.0.0.1", str(server.port), token, request.decode()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_java_reads_the_rows_of_a_read_in_place(tmp_path: Path) -> None:
    if (reason := JARS.missing()) is not None:
        pytest.skip(reason)
    root = unpack_golden("rocketmq-5.3.3", "master", tmp_path)
    request = ScanRequest(("alphaFour", "alphaEight"), ("queueId", "queueOffset", "body"))
    rows = [f"{row['queueId']} {row['queueOffset']} {row['body'].hex()}" for row in rows_in_place(root, request)]
    with served(root) as server:
        assert asked(server, TOKEN, request.encoded()) == rows and len(rows) > 20
        assert asked(server, "wrong-token-of-a-stranger", request.encoded())[0].startswith("UNAUTHENTICATED ")
        wrong = json.dumps({"version": 1, "topics": ["nobody"]}).encode()
        (refused,) = asked(server, TOKEN, wrong)
        assert "UNKNOWN_TOPIC: broker-alpha: no topic 'nobody'" in refused and root not in refused
