"""RocketMQ's own pull consumer, 4.9.7 and 5.3.3, reads from our broker what its producer gave it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.conditions import await_that
from tests.interop import rocketmq
from tests.interop.needs import need
from tests.interop.rocketmq import RealClient
from tests.interop.sides import OurNameServer, brokers_of
from tools.common.local_broker import LocalBroker

TOPIC, COUNT = "pulled", 300
COMPATS = ("4.9", "5")


@pytest.mark.interop
@pytest.mark.parametrize("compat", COMPATS)
@pytest.mark.parametrize("version", rocketmq.VERSIONS)
def test_the_pull_consumer_reads_all_of_it(version: str, compat: str, tmp_path: Path) -> None:
    need([version])
    names = OurNameServer(tmp_path / "names", version)
    try:
        with (
            LocalBroker(
                tmp_path / "broker",
                namesrvAddr=names.address,
                compat=compat,
                brokerName="broker-a",
                **rocketmq.PATIENCE,
            ),
            RealClient(tmp_path / "client", names) as client,
        ):
            await_that(lambda: brokers_of(names.address), "the broker is registered")
            sent = client.ask("produce", topic=TOPIC, first=0, count=COUNT)
            assert [line["status"] for line in sent] == ["SEND_OK"] * COUNT
            for tags in ("*", "Tag1", "Tag0||Tag2"):
                wanted = [line["n"] for line in sent if tags == "*" or is_one_of(line["n"], tags)]
                # Queues are built behind the answers to sends.
                await_that(lambda: len(read(client, tags)) >= len(wanted), f"all of {tags} is there")  # noqa: B023
                assert read(client, tags) == wanted
    finally:
        names.stop()


def read(client: RealClient, tags: str) -> list[int]:
    """The numbers of what is consumed now."""
    lines = client.ask("consume", topic=TOPIC, tags=tags)
    return sorted(int(line["properties"]["n"]) for line in lines if "maxOffset" not in line)


def is_one_of(number: int, tags: str) -> bool:
    """Whether the message of that number has one of these (java/Talk.java)."""
    return number % 5 != 0 and f"Tag{number % 3}" in tags
