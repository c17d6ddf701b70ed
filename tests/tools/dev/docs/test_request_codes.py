"""The reference of request codes against running brokers of both lines, and a name server: each code is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.protocol.remoting.codes import KINDS, RequestCode, RequestKind, ResponseCode
from store.compat import LINES, NEWEST
from tests.interop.remoting import Client
from tests.interop.sides import OurNameServer
from tools.common.local_broker import LocalBroker
from tools.dev.docs import request_codes

ASKED = [code for code in RequestCode if KINDS[code] is not RequestKind.PUSH]
ENDS_NOTHING = {"brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": 1 << 20}


def served(port: int) -> set[RequestCode]:
    """The codes that are not answered as unknown; an empty request of a known one is refused in other words."""
    known = set()
    for code in ASKED:
        client = Client(port)
        try:
            is_known = client.request(code)["code"] != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        except (ConnectionError, EOFError, RuntimeError):
            is_known = True  # taken, and hung up on for what it lacks
        finally:
            client.close()
        known |= {code} if is_known else set()
    return known


@pytest.mark.parametrize("compat", LINES)
def test_a_broker_serves_what_the_page_says(tmp_path: Path, compat: str) -> None:
    with LocalBroker(tmp_path / "b", compat=compat, **ENDS_NOTHING) as broker:
        said = {code for code, lines in request_codes.at_brokers().items() if compat in lines}
        assert served(broker.port) == said


def test_a_name_server_serves_what_the_page_says(tmp_path: Path) -> None:
    with OurNameServer(tmp_path / "names", "5.3.3" if NEWEST == "5" else "4.9.7") as names:
        assert served(int(names.address.rpartition(":")[2])) == set(request_codes.at_name_servers())
