"""Ten thousand come to the HA port and vanish: a slave is served meanwhile, they confirm nothing, nothing grows."""

from __future__ import annotations

from pathlib import Path

from engine import warm
from tests.harness.ha_node import Node, wait_for
from tests.hostile.probes import probes

SEGMENT = 256 * 1024
SIZES = {"mappedFileSizeCommitLog": SEGMENT}
PROBES, GROWN_BYTES_MAX = 10_000, 8 << 20


def test_ten_thousand_that_vanish_at_every_step(tmp_path: Path) -> None:
    with Node(tmp_path / "warm", **SIZES) as master:
        warm.run_replication_once(master.counters)
    with Node(tmp_path / "master", slaveTimeout=60_000, **SIZES) as master:
        master.start("ha_listener", "group_transfer")
        port = master.counters.ha_listen_port.read()
        with Node(tmp_path / "slave", master=port, **SIZES).start("housekeeper", "allocator", "receiver") as slave:
            wait_for(master.counters.in_sync_slaves, 1)

            def is_served() -> None:
                end = master.append(b"x" * 500)
                wait_for(slave.counters.max_physical_offset, end)
                wait_for(master.counters.confirm_offset, end)

            cost = probes(master, PROBES, 0, 1, is_served)
            before = slave.counters.max_physical_offset.read()
            slave.stop("receiver")
            end = master.append(b"y" * 500)
            stranded = probes(master, PROBES // 10, PROBES, 2, lambda: None)
            assert master.counters.confirm_offset.read() == before < end, "nobody but strangers was there"
    assert cost.served > PROBES // 100 and stranded.served
    assert cost.grown_bytes < GROWN_BYTES_MAX
    assert cost.more_descriptors <= 0
