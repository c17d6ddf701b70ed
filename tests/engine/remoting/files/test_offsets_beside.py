"""Offsets are written beside what serves: what changes meanwhile, and what is given up, is not lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine.remoting.files.broker_files import BrokerFiles, OffsetWriting
from engine.settings.config import BrokerConfig, from_mapping
from store.names import CONSUMER_OFFSETS, TOPICS
from store.tables import json_files

NOW = 1_700_000_000_000


def config_of(store: Path, region_dir: Path) -> BrokerConfig:
    return from_mapping({"storePathRootDir": store, "regionPath": region_dir, "brokerName": "a"})


async def turn_of_others() -> None:
    """What is ready on the loop has its turn."""
    passed = asyncio.Event()
    asyncio.get_running_loop().call_soon(passed.set)
    await passed.wait()


def test_offsets_are_written_beside_and_what_changes_meanwhile_the_next_time(store_dir: Path, region_dir: Path) -> None:
    files = BrokerFiles(config_of(store_dir, region_dir), NOW, region_dir, is_beside=True)
    metadata, path = files.metadata, store_dir / "config" / CONSUMER_OFFSETS
    for queue_id in range(100_000):
        metadata.commit_offset("g", "t", queue_id, 1, NOW)
    metadata.changed.add(CONSUMER_OFFSETS)
    files.save(NOW)
    assert files.is_saved(TOPICS) and not files.is_saved(CONSUMER_OFFSETS)

    async def meanwhile() -> None:
        writing = OffsetWriting(metadata)
        task = asyncio.get_running_loop().create_task(files.save_offsets(writing, NOW))
        await turn_of_others()
        assert not task.done() and not files.are_offsets_due(NOW), "it is being made, a part at a time"
        metadata.commit_offset("g", "t", 5, 7, NOW)
        metadata.changed.add(CONSUMER_OFFSETS)
        assert (await writing.compact()).startswith(b'{"offsetTable":{"t@g":{0:1,1:1,2:1,3:1,4:1,5:7')
        await task

    asyncio.run(meanwhile())
    assert files.are_offsets_due(NOW + 10_000)
    metadata.commit_offset("g", "t", 6, 9, NOW)
    files.save(NOW + 10_000, is_last=True)
    offsets = json_files.read(path)["offsetTable"]["t@g"]
    assert (len(offsets), offsets[5], offsets[6]) == (100_000, 7, 9)
    assert json_files.read(path.with_name(f"{CONSUMER_OFFSETS}.bak"))["offsetTable"]["t@g"].keys() == offsets.keys()
    files.close()


def test_offsets_whose_writing_is_given_up_are_not_lost(store_dir: Path, region_dir: Path) -> None:
    files = BrokerFiles(config_of(store_dir, region_dir), NOW, region_dir, is_beside=True)
    for queue_id in range(100_000):
        files.metadata.commit_offset("g", "t", queue_id, 1, NOW)
    files.metadata.changed.add(CONSUMER_OFFSETS)

    async def give_up() -> None:
        task = asyncio.get_running_loop().create_task(files.save_offsets(OffsetWriting(files.metadata), NOW))
        await turn_of_others()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(give_up())
    files.save(NOW, is_last=True)
    assert len(json_files.read(store_dir / "config" / CONSUMER_OFFSETS)["offsetTable"]["t@g"]) == 100_000
    files.close()
