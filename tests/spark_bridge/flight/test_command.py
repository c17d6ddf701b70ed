"""`slipstream flight` in a process of its own: beside a broker that writes, killed, over TLS, and what it refuses."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

from engine.producer import Producer
from spark_bridge.flight.client import RemoteStore, read_remote, read_ticket
from spark_bridge.flight.errors import NotLetIn, ServerUnreachable
from spark_bridge.flight.request import ScanRequest
from spark_bridge.options.values import InvalidOption
from store.upkeep import leases
from tests.harness import command_line
from tests.harness.certificates import Authority
from tests.harness.conditions import await_that
from tests.spark_bridge.flights import READY, STOP_SECONDS, TOKEN, FlightProcess, remote_rows, rows_in_place
from tests.spark_bridge.stores import SmallStore
from tools.common.local_broker import LocalBroker, end, free_port


@pytest.fixture
def small(tmp_path: Path) -> SmallStore:
    made = SmallStore(tmp_path / "broker-a" / "store", 1 << 20)
    for number in range(300):
        made.put("orders", b"x" * 10_000, queue_id=number % 3)
    made.dispatch()
    return made


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    return file


def test_the_same_ticket_works_after_a_kill(small: SmallStore, token_file: Path) -> None:
    port = free_port()
    with FlightProcess(small.root, "--token-file", token_file, port=port) as first:
        store = RemoteStore(first.location, TOKEN)
        plan = store.plan(ScanRequest(("orders",), ("queueId", "queueOffset", "body"), {"minPartitions": "1"}))
        rows = [row for ticket in plan.tickets for batch in store.read(ticket) for row in batch.to_pylist()]
        stream = read_ticket([store], plan.tickets[0], 120)
        got = next(stream).to_pylist()
        first.process.kill()
        first.process.wait()
        with FlightProcess(small.root, "--token-file", token_file, port=port):
            got += [row for batch in stream for row in batch.to_pylist()]
            for ticket in plan.tickets[1:]:
                got += [row for batch in read_ticket([store], ticket) for row in batch.to_pylist()]
        store.close()
    assert got == rows and len(rows) == 300


def test_the_flight_command_ends_by_a_signal_and_makes_its_own_token(small: SmallStore) -> None:
    with FlightProcess(small.root) as running:
        assert running.broker == "broker-a" and len(running.token) >= 40
        request = ScanRequest(("orders",))
        assert remote_rows(running.location, request, running.token) == rows_in_place(small.root, request)
        with pytest.raises(NotLetIn):
            remote_rows(running.location, request, TOKEN)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(120) == 0
        assert running.process.stderr.read() == ""
    with FlightProcess(small.root, "--no-token") as open_to_all:
        assert open_to_all.token is None
        assert len(remote_rows(open_to_all.location, request, None)) == 300


WITHOUT_SETTINGS = """
import sys
from ipc import module_names
module_names.SETTINGS = "missing.toml"
from tools.cli import main
sys.argv = ["slipstream", "flight", "--port", "0", "--no-token", sys.argv[1]]
main()
"""


def test_sources_without_a_version_serve_too(small: SmallStore) -> None:
    """A host may have the packages on PYTHONPATH without the pyproject.toml that states the version."""
    command = [sys.executable, "-c", WITHOUT_SETTINGS, str(small.root)]
    path = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=path) as process:
        try:
            found = READY.match(process.stdout.readline())
            assert found is not None, process.stderr.read()
            with RemoteStore(found.group(2), None) as store:
                assert store.store()["version"] == "unknown"
        finally:
            end(process, STOP_SECONDS)


def test_the_flight_command_serves_tls_with_a_brokers_files(
    small: SmallStore, token_file: Path, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca")
    own, other = authority.issue("node"), Authority(tmp_path / "other", "another authority")
    tls = tmp_path / "tls.properties"
    tls.write_text(f"tls.server.certPath={own.certificate}\ntls.server.keyPath={own.key}\n")
    roots = authority.certificate.read_bytes()
    with FlightProcess(small.root, "--token-file", token_file, "--tls-config", tls) as running:
        assert running.location.startswith("grpc+tls://")
        assert len(remote_rows(running.location, ScanRequest(), tls_roots=roots)) == 300
        plain = running.location.replace("grpc+tls", "grpc")
        for location, trusted in ((running.location, other.certificate.read_bytes()), (plain, None)):
            with pytest.raises(ServerUnreachable):
                read_remote(location, ScanRequest(), TOKEN, trusted)


def test_what_is_refused_at_the_start_is_one_line(small: SmallStore, token_file: Path, tmp_path: Path) -> None:
    weak = tmp_path / "weak"
    weak.write_text("short\n")
    for arguments, said in (
        ((), "give either STORE or -c"), ((small.root, "-c", token_file), "either STORE or -c"),
        ((small.root, "--host", "0.0.0.0"), "--token-file"),
        ((small.root, "--host", "0.0.0.0", "--no-token"), "--token-file"),
        ((small.root, "--host", "0.0.0.0", "--token-file", token_file), "--expose"),
        ((small.root, "--token-file", token_file, "--no-token"), "one of them"),
        ((small.root, "--token-file", weak), "printable ASCII"),
        ((small.root, "--allow", "everybody"), "--allow everybody"),
        ((tmp_path / "nowhere",), "NOT_A_STORE"), ((small.root, "--host", "192.0.2.1", "--token-file", token_file,
                                                   "--expose", "--port", "0"), "192.0.2.1:0 cannot be listened on"),
    ):  # fmt: skip
        ran = command_line.run("flight", *arguments)
        assert ran.exit_code == 2 and said in ran.stderr and ran.stderr.count("\n") == 1, (arguments, ran)
    with FlightProcess(small.root) as running:
        ran = command_line.run("flight", small.root, "--port", running.port)
        assert ran.exit_code == 2 and "cannot be listened on" in ran.stderr and ran.stderr.count("\n") == 1


@pytest.mark.broker
def test_the_flight_command_serves_rows_beside_a_broker_that_writes(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "broker-a", mappedFileSizeCommitLog=1 << 20) as broker:
        properties = tmp_path / "broker-a" / "broker.properties"
        with Producer(broker.store, timeout=60) as producer, FlightProcess("-c", properties) as running:
            counts = []
            with RemoteStore(running.location, running.token) as store:
                for turn in range(10):
                    producer.send_batch("orders", [bytes([turn]) * 1000] * 200, timeout=60)
                    rows = remote_rows(running.location, ScanRequest(("orders",), ("body",)), running.token)
                    counts.append(len(rows))
                    ticket = store.plan(ScanRequest(("orders",), options={"minPartitions": "1"})).tickets[0]
                    stream = store.read(ticket)
                    next(stream)
                    assert leases.held_from(broker.store, 0) == 0, "the log is held for it"
                    stream.close()
                assert counts == [200 * (turn + 1) for turn in range(10)]
                assert store.store()["isRunning"]
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(120) == 0
            await_that(lambda: leases.held_from(broker.store, 0) is None, "nothing is held any more")
        assert not list((broker.store / "slipstream.leases").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_user_without_rights_is_refused_before_it_serves(small: SmallStore) -> None:
    with tempfile.TemporaryDirectory(prefix="slipstream-test-") as open_dir:  # pytest's own are closed to others
        Path(open_dir).chmod(0o755)
        store = shutil.copytree(small.root, Path(open_dir) / "store")
        (store / "commitlog").chmod(0o700)
        done = _as_nobody("flight", store)
    assert done.returncode == 4 and done.stderr.count("\n") == 1 and "ACCESS_DENIED" in done.stderr, done


def _as_nobody(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A command line of another user's, whose Python has loaded before what that user may not read."""
    loaded = "secrets, tools.run.flight, engine.net.log_lines, spark_bridge.flight.server, store.recovery.recovery"
    script = f"import os, sys, {loaded}; from tools.cli import run_command; os.setgroups([]); os.setgid(65534);"
    script += " os.setuid(65534); sys.exit(run_command(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_no_call_tells_of_the_servers_inside(small: SmallStore) -> None:
    with FlightProcess(small.root) as running, flight.FlightClient(running.location) as client:
        headers = [(b"authorization", f"Bearer {running.token}".encode())]
        known, odd = flight.FlightCallOptions(headers=headers), [(b"authorization", b"Bearer \xc3\xbc")]
        wrong = flight.FlightDescriptor.for_command(b"{}")
        for options in (known, flight.FlightCallOptions(), flight.FlightCallOptions(headers=odd)):
            for call in (
                lambda options=options: client.get_schema(wrong, options),
                lambda options=options: client.get_flight_info(wrong, options),
                lambda options=options: client.do_get(flight.Ticket(b"{}"), options).read_all(),
                lambda options=options: list(client.do_action("nothing", options)),
                lambda options=options: client.do_put(wrong, pa.schema([]), options)[0].close(),
                lambda options=options: client.do_exchange(wrong, options)[1].read_all(),
            ):
                with pytest.raises(Exception) as told:
                    call()
                assert "Traceback" not in str(told.value) and "spark_bridge" not in str(told.value), told.value
                assert str(small.root) not in str(told.value)
        with RemoteStore(running.location, running.token) as store, pytest.raises(InvalidOption, match="no column 'x'"):
            store.schema(ScanRequest(columns=("x",)))
