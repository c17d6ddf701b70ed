"""Producers and consumers in Java and Python go on while a slave takes the place of its master."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.monitoring.ha_status import ha_status
from ipc.clock import wall_ms
from tests.harness.command_line import run
from tests.harness.conditions import await_that
from tests.histories.checker import KINDS, History, faults
from tests.histories.run import PAUSE_US, SETTINGS, THREADS, member_of
from tests.interop import needs
from tests.interop.clients import REAL_OF, make_topics
from tests.interop.sides import OurNameServer
from tools.common.local_broker import LocalBroker

BEFORE, AFTER = 150, 50  # messages of each kind that are seen
SECONDS = 300.0  # an orderly queue whose member went stays locked for 60


def seen(history: History, since_ms: int) -> int:
    """Of the kind of which fewest are seen: messages sent since then, acknowledged and given to a consumer."""
    sent = {one.n for one in list(history.sent.values()) if one.begun > since_ms and one.is_acknowledged}
    got = {(one.kind, one.n) for one in list(history.got) if one.n in sent}
    return min(sum(kind == of for of, _n in got) for kind in KINDS)


@pytest.mark.crash
@pytest.mark.interop
@pytest.mark.peer
@pytest.mark.parametrize(
    ("kind", "cast"),
    [
        ("ours 4.9", ("java", "java", "java")),
        ("ours 5", ("java", "java", "java")),
        ("ours 4.9", ("java", "wire", "wire")),
        ("ours 5", ("local", "local", "wire")),
    ],
)
def test_consumers_go_on_where_they_were_at_a_promoted_slave(
    kind: str, cast: tuple[str, str, str], tmp_path: Path
) -> None:
    version, history, lock = REAL_OF[kind], History(), threading.Lock()
    needs.need([version])
    with ExitStack() as stack:
        names = stack.enter_context(OurNameServer(tmp_path / "names", version))
        common = {
            **SETTINGS,
            "brokerName": "broker-a",
            "namesrvAddr": names.address,
            "compat": kind.removeprefix("ours "),
            "ringSizeInBytes": 1 << 24,
            "haReconnectInterval": 100,
        }
        a = stack.enter_context(LocalBroker(tmp_path / "a", brokerRole="SYNC_MASTER", **common))
        slave = {**common, "brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": a.ha_address}
        b = stack.enter_context(LocalBroker(tmp_path / "b", **slave))
        await_that(lambda: ha_status(a.store).in_sync_slaves, "a slave is in sync")
        make_topics(a.port, names.address, [f"History-{of}" for of in KINDS])
        members = {
            name: stack.enter_context(
                member_of(of, store if of == "local" else None, tmp_path / name, names, history, lock, *words)
            )
            for of, store, name, words in (
                (cast[0], a.store, "consumer-0", ("consume", "consumer-0")),
                (cast[1], b.store, "consumer-1", ("consume", "consumer-1")),
                (cast[2], None, "producer", ("produce", "0", str(THREADS), str(PAUSE_US))),
            )
        }
        await_that(lambda: seen(history, 0) >= BEFORE, "consumers are in step", SECONDS)
        before, history.kills = len(history.got), ["promotion"]
        ran = run("promote", b.store, "--switch")
        assert ran.exit_code == 0, ran.output
        history.deaths.append(wall_ms())
        await_that(lambda: seen(history, history.deaths[0]) >= AFTER, "they go on at the new master", SECONDS)
        members["producer"].stop_sending()
        await_that(members["producer"].is_quiet.is_set, "the producer has its last answers", SECONDS)
        await_that(lambda: not history.missing(), "all is seen", SECONDS)
    assert faults(history) == []
    assert history.duplicates() < before / 2, "nobody began again"
