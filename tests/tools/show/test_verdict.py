"""One verdict on a broker: exit codes of `status`, `ha status` and `doctor`, and what /readyz and /healthz answer."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.monitoring.finding import Verdict
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.reading import extent
from tests.harness.command_line import run
from tests.harness.conditions import await_that
from tools.common.exit_codes import MEANINGS, ExitCode, of_verdict
from tools.common.local_broker import LocalBroker

PAGE = Path(__file__).parents[3] / "docs/operations.md"
SMALL = {"mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536}
COMMANDS = (("status",), ("status", "--ready"), ("status", "--alive"), ("ha", "status"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalBroker, BrokerCounters]]:
    """A SYNC_MASTER without a slave."""
    with LocalBroker(tmp_path_factory.mktemp("verdict") / "m", brokerRole="SYNC_MASTER", **SMALL) as master:
        counters = BrokerCounters.attach(extent.require_running(master.store).region_directory, writable=True)
        await_that(lambda: counters.metrics_port.read() > 0, "it serves metrics")
        yield master, counters
        counters.region.close()


def told(alone: tuple[LocalBroker, BrokerCounters]) -> tuple[str, list[int], list[int]]:
    """The verdict, the exit codes of COMMANDS, the answers of /readyz and /healthz."""
    store, port = alone[0].store, alone[1].metrics_port.read()
    answers = []
    for path in ("/readyz", "/healthz"):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("GET", path)
        answer = connection.getresponse()
        said = json.loads(answer.read())
        assert said["ok"] is (answer.status == 200) is (not said["reasons"])
        answers.append(answer.status)
        connection.close()
    for words in (("status", "--json"), ("ha", "status", "--json")):
        ran = json.loads(run(*words, store).stdout)
        worst = max((one["verdict"] for one in ran["findings"]), key=Verdict.__getitem__)
        assert ran["verdict"] == said["verdict"] == worst
    return said["verdict"], [run(*words, store).exit_code for words in COMMANDS], answers


def test_a_master_without_its_slave_is_degraded_and_no_probe_restarts_it(
    alone: tuple[LocalBroker, BrokerCounters],
) -> None:
    assert told(alone) == ("DEGRADED", [1, 0, 0, 1], [200, 200])
    ran = run("ha", "status", alone[0].store)
    assert "NO_SLAVE" in ran.stdout, "what ends with 1 says why"
    found = json.loads(run("doctor", "--json", "--timeout", "120", alone[0].store).stdout)
    assert "NO_SLAVE" in [row["reason"] for row in found["rows"] if row["level"] == "wrong"]


def test_tables_that_were_damaged_before_the_start_are_reported_until_their_files_go(tmp_path: Path) -> None:
    names = ("consumerOffset.json", "topics.json")
    config = tmp_path / "m" / "store" / "config"
    config.mkdir(parents=True)
    for name in names:
        (config / name).write_bytes(bytes(300))
    with LocalBroker(tmp_path / "m", **SMALL) as broker:
        for words in (("status", "--json"), ("ha", "status", "--json"), ("doctor", "--json", "--timeout", "120")):
            ran = run(*words, broker.store)
            said = json.loads(ran.stdout)["rows" if "doctor" in words else "findings"]
            assert ran.exit_code == 1, words
            assert all([one for one in said if one["reason"] == "TABLE" and name in one["what"]] for name in names)
        for name in names:
            (config / f"{name}.aside").unlink()
        assert [run(*words, broker.store).exit_code for words in COMMANDS] == [0, 0, 0, 0]


def test_a_port_that_is_not_bound_is_not_ready_and_a_role_that_was_given_up_is_dead(
    alone: tuple[LocalBroker, BrokerCounters],
) -> None:
    counters = alone[1]
    port = counters.ha_listen_port.read()
    try:
        waiting.publish(counters.ha_listen_port, 0)
        assert told(alone) == ("NOT_READY", [1, 1, 0, 1], [503, 200])
        waiting.publish(counters.given_up["flusher"], 1)
        assert told(alone) == ("DEAD", [1, 1, 1, 1], [503, 503])
        ran = run("doctor", "--json", "--timeout", "120", alone[0].store)
        rows = [row for row in json.loads(ran.stdout)["rows"] if row["level"] == "wrong"]
        assert ran.exit_code == 1 and any("flusher" in row["what"] for row in rows)
    finally:
        waiting.publish(counters.ha_listen_port, port)
        waiting.publish(counters.given_up["flusher"], 0)


def test_the_page_has_every_verdict_and_every_exit_code() -> None:
    page = PAGE.read_text()
    for code, meaning in MEANINGS.items():
        assert f"| {int(code)} | {meaning} |" in page
    assert set(MEANINGS) == set(ExitCode)
    answers = {ExitCode.WELL: "0, 200", ExitCode.FOUND: "1, 503"}
    for verdict in Verdict:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {verdict.name} |")]
        cells = [cell.strip() for cell in row.strip("|").split("|")][2:]
        codes = [of_verdict(verdict.name, question) for question in ("well", "ready", "alive")]
        assert cells == [str(int(codes[0])), *(answers[code] for code in codes[1:])]
