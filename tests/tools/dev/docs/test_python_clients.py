"""The blocks of the page on Python clients run, with a name server and a broker of this test."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from engine.producer import Producer
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.sockets.client import PeerRefused, RemotingClient
from store.reading.opened import open_store
from tests.harness.conditions import await_that
from tests.harness.page_blocks import Session, blocks_of
from tests.harness.served_names import Serving
from tools.common.local_broker import LocalBroker

SIZES = {"mappedFileSizeCommitLog": 1 << 20, "brokerFastFailureEnable": "false", "osPageCacheBusyTimeOutMills": 600_000}
PAGE = "python-clients.md"


def is_known(name_server: str, topic: str) -> bool:
    with RemotingClient(name_server, 120.0) as asking, suppress(PeerRefused):
        asking.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        return True
    return False


def test_the_blocks_of_the_page_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = Serving()
    instead = {
        "10.0.0.1:9876": f"127.0.0.1:{names.port}",
        '-service"': '-service", timeout=120',
        '"*"})': '"*"}, timeout=120)',
        'consume_from="first")': 'consume_from="first", timeout=120)',
        "offsets=offsets)": "offsets=offsets, timeout=120)",
        ", timeout=120, settings=settings, timeout=10": ", settings=settings, timeout=120",
    }
    try:
        at = f"127.0.0.1:{names.port}"
        with LocalBroker(tmp_path / "shop", namesrvAddr=at, **SIZES) as broker:
            with Producer(broker.store, timeout=120) as producer:
                for topic in ("orders", "refunds"):
                    producer.send(topic, b"zero")
                    await_that(partial(is_known, at, topic), "the name server knows the topic")
            assert Session(PAGE, tmp_path, instead).run() == len(blocks_of(PAGE)) == 9
            printed = capsys.readouterr().out
            assert "PUT_OK shop" in printed and "True True" in printed

            def bodies() -> set[str]:
                store = open_store(broker.store)
                return {bytes(one.body).decode() for topic in ("orders", "payments") for one in store.messages(topic)}

            sent = {*"one two three four five six eight nine ordered paid sent 17".split()}
            await_that(lambda: bodies() >= sent, "all of them are in their queues")
    finally:
        names.stop()
