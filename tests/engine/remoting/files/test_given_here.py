"""The file of offsets that consumers committed at a slave."""

from __future__ import annotations

from pathlib import Path

from engine.remoting.files.broker_files import BrokerFiles
from store.names import GIVEN_OFFSETS
from tests.engine.remoting.files.test_broker_files import NOW, config_of


def test_what_consumers_gave_a_slave_outlives_it_and_a_master_forgets_it(store_dir: Path, region_dir: Path) -> None:
    slave = config_of(store_dir, region_dir, brokerRole="SLAVE", brokerId=1)
    files = BrokerFiles(slave, NOW, region_dir)
    files.metadata.give_offset("g", "t", 0, 7)
    files.metadata.give_offset("g", "t", 1, 8)
    files.metadata.changed.add(GIVEN_OFFSETS)
    files.save(NOW)
    files = BrokerFiles(slave, NOW, region_dir)
    assert files.metadata.consumer_offsets.given_here == {("t", "g"): {0: 7, 1: 8}}
    files.metadata.given(("t", "g"), 0, 6)
    files.metadata.given(("t", "g"), 1, 8)
    files.save(NOW)
    assert BrokerFiles(slave, NOW, region_dir).metadata.consumer_offsets.given_here == {("t", "g"): {0: 7}}
    master = BrokerFiles(config_of(store_dir, region_dir), NOW, region_dir)
    master.save(NOW)
    assert not BrokerFiles(slave, NOW, region_dir).metadata.consumer_offsets.given_here, "what it said is old by now"
