"""A name server's settings as administrators see and change them."""

from __future__ import annotations

import pytest

from engine.protocol.naming.name_server import NameServer
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from store.compat import LINES

SHOWN = {"listenPort": "9876", "kvConfigPath": "/names/kvConfig.json"}


def asked(server: NameServer, code: int, body: bytes = b"") -> RemotingCommand:
    answer = server.answer(RemotingCommand(code, 1, body=body), 1, 0)
    assert answer is not None
    return answer


def shown(server: NameServer) -> dict[str, str]:
    body = bytes(asked(server, RequestCode.GET_NAMESRV_CONFIG).body).decode()
    return dict(line.split("=", 1) for line in body.splitlines())


@pytest.mark.parametrize("compat", LINES)
def test_what_may_change_does_and_nothing_of_a_refused_request(compat: str) -> None:
    server, change = NameServer(compat, shown=SHOWN), RequestCode.UPDATE_NAMESRV_CONFIG
    assert shown(server) == {**SHOWN, "orderMessageEnable": "false", "supportActingMaster": "false"}
    assert asked(server, change, b"orderMessageEnable = TRUE\n#listenPort=1\n").code == 0
    assert shown(server)["orderMessageEnable"] == "true"
    for body, code in (
        (b"kvConfigPath=x\norderMessageEnable=false", ResponseCode.NO_PERMISSION),
        (b"listenPort=1\norderMessageEnable=false", ResponseCode.NO_PERMISSION),
        (b"orderMessageEnable=false\nenableTopicList=false", ResponseCode.NO_PERMISSION),
        (b"supportActingMaster=true\norderMessageEnable=perhaps", ResponseCode.SYSTEM_ERROR),
        (b"orderMessageEnable=false\n" + b"x" * 100_000, ResponseCode.SYSTEM_ERROR),
    ):
        assert asked(server, change, body).code == code
    assert shown(server) == {**SHOWN, "orderMessageEnable": "true", "supportActingMaster": "false"}
