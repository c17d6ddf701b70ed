"""The metadata table `replicas` through the Flight servers of several replicas: a row each, silent ones too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from spark_bridge.flight.client import RemoteStore
from spark_bridge.flight.errors import ServerUnreachable
from spark_bridge.flight.request import ScanRequest
from spark_bridge.options.values import InvalidOption
from tests.spark_bridge.flight.test_tables import in_place, spark_free
from tests.spark_bridge.flights import TOKEN, served
from tests.spark_bridge.stores import SmallStore


@pytest.fixture
def small(tmp_path: Path) -> SmallStore:
    """A master's store, of a few messages."""
    made = SmallStore(tmp_path / "one" / "broker-a" / "store", 4096)
    for number in range(6):
        made.put("orders", b"%d" % number)
    made.dispatch()
    return made


def test_replicas_of_several_servers_are_a_row_each(
    small: SmallStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the address that was asked; of one that is silent, or goes while it is asked, no more is known."""
    copy = tmp_path / "two" / "broker-a" / "store"
    shutil.copytree(small.root, copy)
    small.put("orders", b"later")
    small.dispatch()
    silent, lost = "grpc://127.0.0.1:1", ""
    with served(small.root) as first, served(copy) as second:
        asked = RemoteStore.table

        def table(store: RemoteStore, request: ScanRequest) -> list[pa.RecordBatch]:
            if store.location == lost:
                raise ServerUnreachable(store.location, "gone meanwhile")
            return asked(store, request)

        monkeypatch.setattr(RemoteStore, "table", table)
        places = [second.location, silent, first.location]
        options = {"path": ",".join(places), "table": "replicas", "flightToken": TOKEN}
        roots = {first.location: small.root, second.location: copy}
        here = {place: in_place(root, "replicas")[0] | {"path": place, "pid": None} for place, root in roots.items()}
        nothing = dict.fromkeys(here[first.location]) | {"brokerName": "broker-a"}
        assert spark_free(options) == [here.get(place, nothing | {"path": place}) for place in places]
        assert here[first.location]["maxPhysicalOffset"] > here[second.location]["maxPhysicalOffset"]
        few = spark_free({**options, "columns": "maxPhysicalOffset,brokerName"})
        ends = [here.get(place, nothing)["maxPhysicalOffset"] for place in places]
        assert few == [{"maxPhysicalOffset": end, "brokerName": "broker-a"} for end in ends]
        lost = second.location
        rows = [here[first.location] if place == first.location else nothing | {"path": place} for place in places]
        assert spark_free(options) == rows
        for paths in ([silent], [silent, first.location]):
            with pytest.raises(ServerUnreachable):
                spark_free({**options, "path": "", "paths": json.dumps(paths)})
        with pytest.raises(InvalidOption, match="one path, with commas"):
            spark_free({**options, "path": "", "paths": json.dumps(list(roots))})
