"""Clients at RocketMQ brokers with access control: the right keys are served, wrong keys and none are refused.

4.9.7 checks the accounts of a file, and 5.3.3 its users. 5.3.3 has no ACL 1.0 any more.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator

import pytest

from engine.clients.access import Credentials
from engine.clients.cluster import Cluster
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.remoting.sockets.client import PeerRefused
from tests.harness import command_line
from tests.interop import rocketmq
from tests.interop.needs import need
from tests.interop.rocketmq import RocketMQBroker, is_five

SECONDS = 60.0
KEYS, INNER = Credentials("client-key", "client-secret"), Credentials("broker-key", "broker-secret")
ACCOUNTS = f"""accounts:
- accessKey: {KEYS.access_key}
  secretKey: {KEYS.secret_key}
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - open=PUB|SUB
  groupPerms:
  - readers=SUB
- accessKey: {INNER.access_key}
  secretKey: {INNER.secret_key}
  admin: true
"""
REFUSED = {
    "4.9.7": {
        "a wrong secret": (ResponseCode.SYSTEM_ERROR, r"Check signature failed for accessKey=client-key"),
        "an unknown key": (ResponseCode.SYSTEM_ERROR, r"No acl config for nobody-key"),
        "no keys": (ResponseCode.SYSTEM_ERROR, r"No accessKey is configured"),
    },
    "5.3.3": {
        "a wrong secret": (ResponseCode.NO_PERMISSION, r"check signature failed"),
        "an unknown key": (ResponseCode.NO_PERMISSION, r"User:nobody-key is not found"),
        "no keys": (ResponseCode.NO_PERMISSION, r"username cannot be null"),
    },
}
DENIED = {
    "4.9.7": r"No default permission for topic:closed",
    "5.3.3": r"User:stranger-key has no permission to access Topic:closed",
}
CREATE_USER = 3001
WRONG = {
    "a wrong secret": Credentials(KEYS.access_key, "another-secret"),
    "an unknown key": Credentials("nobody-key", KEYS.secret_key),
    "no keys": None,
}


@pytest.fixture(scope="module", params=rocketmq.VERSIONS)
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQBroker]:
    """A broker with access control, and the topic `open`."""
    version = request.param
    need([version])
    home = tmp_path_factory.mktemp("guarded")
    if is_five(version):
        package = "org.apache.rocketmq.auth.{0}.provider.Local{1}MetadataProvider"
        settings = {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationMetadataProvider": package.format("authentication", "Authentication"),
            "authorizationMetadataProvider": package.format("authorization", "Authorization"),
            "initAuthenticationUser": json.dumps({"username": KEYS.access_key, "password": KEYS.secret_key}),
            "innerClientAuthenticationCredentials": json.dumps(
                {"accessKey": INNER.access_key, "secretKey": INNER.secret_key}
            ),
            "authConfigPath": str(home / "auth"),
        }
    else:
        settings = {"aclEnable": "true"}
        (home / "conf").mkdir()
        (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    with RocketMQBroker(home, version, **settings) as broker:
        yield broker


def asked(
    broker: RocketMQBroker, credentials: Credentials | None, code: int, fields: dict[str, str], body: bytes
) -> bytes:
    """The body of a broker's answer to a client with these credentials."""

    async def exchange() -> bytes:
        address = f"127.0.0.1:{broker.port}"
        cluster = Cluster("", address, SECONDS, None, credentials)
        try:
            return bytes((await cluster.to(address).need(code, fields, body)).body)
        finally:
            await cluster.close()

    return asyncio.run(exchange())


def send(broker: RocketMQBroker, credentials: Credentials | None, body: bytes, topic: str = "open") -> None:
    fields = {
        "a": "writers", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": str(time.time_ns() // 1_000_000),
        "h": "0", "i": "UNIQ_KEY\x01unique\x02", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    asked(broker, credentials, RequestCode.SEND_MESSAGE_V2, fields, body)


def pull(broker: RocketMQBroker, credentials: Credentials | None) -> bytes:
    fields = {
        "consumerGroup": "readers", "topic": "open", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
        "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "20000", "subscription": "*",
        "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    return asked(broker, credentials, RequestCode.PULL_MESSAGE, fields, b"")


@pytest.mark.interop
def test_a_client_with_the_right_keys_sends_and_pulls(guarded: RocketMQBroker) -> None:
    send(guarded, KEYS, b"signed body")
    assert b"signed body" in pull(guarded, KEYS)


@pytest.mark.interop
@pytest.mark.parametrize("why", list(WRONG))
def test_a_client_without_the_right_keys_is_refused_with_the_brokers_text(guarded: RocketMQBroker, why: str) -> None:
    code, words = REFUSED[guarded.version][why]
    for ask in (lambda: send(guarded, WRONG[why], b"x"), lambda: pull(guarded, WRONG[why])):
        with pytest.raises(PeerRefused, match=words) as refused:
            ask()
        assert refused.value.response_code == code
        assert "client-secret" not in str(refused.value)


@pytest.mark.interop
def test_a_topic_that_is_denied_to_the_key_is_refused(guarded: RocketMQBroker) -> None:
    stranger = KEYS
    if is_five(guarded.version):
        stranger = Credentials("stranger-key", "stranger-secret")
        user = {"username": stranger.access_key, "password": stranger.secret_key, "userType": "Normal"}
        asked(guarded, KEYS, CREATE_USER, {"username": stranger.access_key}, json.dumps(user).encode())
    with pytest.raises(PeerRefused, match=DENIED[guarded.version]):
        send(guarded, stranger, b"x", topic="closed")


def commanded(broker: RocketMQBroker, *arguments: str, lines: str = "") -> command_line.Ran:
    """A command with the client's access key."""
    at = ("-t", "open", "-b", f"127.0.0.1:{broker.port}", "--access-key", KEYS.access_key)
    return command_line.run(*arguments, *at, "--timeout", str(SECONDS), lines=lines)


@pytest.mark.interop
def test_commands_sign_their_requests(guarded: RocketMQBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    consume = ("consume", "-g", "readers", "--from", "first")
    monkeypatch.setenv("SLIPSTREAM_SECRET_KEY", KEYS.secret_key)
    sent = commanded(guarded, "send", lines="from a command\n")
    assert (sent.exit_code, sent.stdout) == (0, "1 message to open: 1 SEND_OK\n"), sent.stderr
    taken = commanded(guarded, *consume)
    assert (taken.exit_code, "from a command" in taken.stdout.splitlines()) == (0, True), taken.stderr
    monkeypatch.setenv("SLIPSTREAM_SECRET_KEY", "another-secret")
    for refused in (commanded(guarded, "send", lines="x\n"), commanded(guarded, *consume)):
        assert refused.exit_code != 0
        assert refused.stderr.count("\n") == 1 and "signature failed" in refused.stderr, refused.stderr
