"""Loads from stores of other hosts, through Flight servers: the same rows and offsets, each goes on as the other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_bridge.flight.errors import NotLetIn, ServerUnreachable
from spark_bridge.lake.errors import OtherLog
from spark_bridge.options.values import InvalidOption
from spark_bridge.stream.offsets import DataLost
from tests.spark_bridge.flights import TOKEN, served
from tests.spark_bridge.lake.test_load import other_log
from tests.spark_bridge.lakes import Lake
from tests.spark_bridge.registries import DESCRIPTORS, PROTOBUF_BODIES, Registry, serving
from tools.common.local_broker import free_port


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, "delta")


def test_in_place_and_through_flight_a_load_goes_on_as_the_other(lake: Lake) -> None:
    lake.fill(40)
    lake.fill(10, "returns")
    with served(lake.store.root) as server:
        there = {"store": server.location, "flightToken": TOKEN}
        assert [one.rows for one in lake.load(**there, max_rows=20)] == [20, 20, 10]
        assert lake.places() == lake.expected
        in_place = lake.delta().version()
        assert lake.load() == [] and lake.delta().version() == in_place, "the offsets are the same"
        lake.fill(5)
        assert [one.rows for one in lake.load()] == [5]
        lake.fill(5)
        assert [one.rows for one in lake.load(**there)] == [5]
    assert lake.places() == lake.expected


def test_fields_are_decoded_by_the_server(lake: Lake) -> None:
    lake.put("orders", b'{"id": 1}', b"none", b'{"id": 3}')
    with served(lake.store.root) as server:
        options = {"decode": "json", "valueSchema": "id bigint", "mode": "permissive"}
        lake.load(store=server.location, flightToken=TOKEN, **options)
    assert [row["id"] for row in lake.rows()] == [1, None, 3]


def test_another_log_elsewhere_and_losses_there_are_reported(lake: Lake, tmp_path: Path) -> None:
    lake.fill(30)
    lake.load()
    lake.fill(10)
    with (
        served(other_log(lake, tmp_path / "other", 40)) as server,
        pytest.raises(OtherLog, match="another history"),
    ):
        lake.load(store=server.location, flightToken=TOKEN)
    shutil.rmtree(lake.store.root / "consumequeue" / "orders")
    lake.store.records.clear()
    lake.put("orders", b"again")
    with served(lake.store.root) as server, pytest.raises(DataLost, match="the topic was created anew"):
        lake.load(store=server.location, flightToken=TOKEN)
    assert len(lake.rows()) == 30


def test_a_server_that_is_not_there_or_wants_a_token_ends_the_load_in_words(lake: Lake) -> None:
    lake.fill(3)
    with pytest.raises(ServerUnreachable):
        lake.load(store=f"grpc://127.0.0.1:{free_port()}")
    with served(lake.store.root) as server:
        with pytest.raises(NotLetIn):
            lake.load(store=server.location, flightToken="another-token-of-them")
        with pytest.raises(InvalidOption, match="name the topics"):
            lake.load(store=server.location, flightToken=TOKEN, name=str(lake.directory / "{topic}"))


def test_bodies_of_a_registry_are_decoded_where_the_table_is_written(lake: Lake, tmp_path: Path) -> None:
    descriptors = tmp_path / "orders.desc"
    descriptors.write_bytes(DESCRIPTORS)
    lake.put("orders", PROTOBUF_BODIES[0])
    with serving(Registry()) as registry, served(lake.store.root) as server:
        decoding = {"decode": "protobuf", "protobufDescriptors": str(descriptors), "protobufMessage": "shop.Order",
                    "schemaRegistry": registry.url}  # fmt: skip
        lake.load(**decoding)
        lake.put("orders", PROTOBUF_BODIES[1])
        lake.load(store=server.location, flightToken=TOKEN, **decoding)
    assert sorted(row["state"] for row in lake.rows()) == ["NEW", "PAID"]
