"""Signatures of requests: RocketMQ's own, the fields that carry them, and what credentials show and refuse."""

from __future__ import annotations

import asyncio

import pytest

from engine.clients.access import Credentials, signed
from engine.clients.cluster import Cluster
from engine.clients.names import ClientError
from engine.protocol.remoting.codes import REQUEST_VERSION, RequestCode, ResponseCode
from engine.protocol.remoting.frame import FrameSplitter, RemotingCommand, decode, encode
from tests.harness.signed_cases import SIGNED_CASES, recorded_signatures

SECONDS = 60.0
KEYS = Credentials("reader-1", "the secret", "the token")


def test_every_signature_is_the_one_that_rocketmq_recorded() -> None:
    recorded = recorded_signatures()
    assert tuple(case for case, _ in recorded) == SIGNED_CASES
    for case, signature in recorded:
        credentials = Credentials(case.access_key, case.secret_key, case.security_token)
        assert signed(case.fields, case.body.encode(), credentials)["Signature"] == signature, case


def test_a_signed_request_keeps_its_fields_and_names_the_client() -> None:
    fields = signed({"topic": "t"}, b"", KEYS)
    named = {"topic": "t", "AccessKey": "reader-1", "SecurityToken": "the token", "Signature": fields["Signature"]}
    assert fields == named
    assert signed(None, b"", Credentials("reader-1", "the secret")).keys() == {"AccessKey", "Signature"}


def test_a_signature_covers_every_value_and_the_body() -> None:
    signatures = {
        signed(fields, body, KEYS)["Signature"]
        for fields, body in (({"a": "1"}, b""), ({"a": "2"}, b""), ({"a": "1"}, b"x"), ({"a": "1", "b": "2"}, b""))
    }
    assert len(signatures) == 4


@pytest.mark.parametrize("credentials", [KEYS, None])
def test_a_cluster_signs_questions_and_oneway_requests_if_it_has_credentials(credentials: Credentials | None) -> None:
    requests = asyncio.run(_requests_of(credentials))
    assert [bytes(request.body) for request in requests] == [b"", b"body"]
    for request in requests:
        body = bytes(request.body)
        assert request.ext_fields == ({"a": "1"} if credentials is None else signed({"a": "1"}, body, credentials))


async def _requests_of(credentials: Credentials | None) -> list[RemotingCommand]:
    """The oneway request and the question that a server gets."""
    seen: list[RemotingCommand] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        splitter = FrameSplitter()
        while data := await reader.read(4096):
            for request in map(decode, splitter.feed(data)):
                seen.append(request)
                if not request.is_oneway:
                    writer.write(encode(request.answer(ResponseCode.SUCCESS, version=REQUEST_VERSION)))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    cluster = Cluster("", address, SECONDS, None, credentials)
    await cluster.to(address).tell(RequestCode.UPDATE_CONSUMER_OFFSET, {"a": "1"})
    await cluster.to(address).need(RequestCode.PULL_MESSAGE, {"a": "1"}, b"body")
    await cluster.close()
    server.close()
    await server.wait_closed()
    return seen


def test_credentials_show_no_secret() -> None:
    assert repr(KEYS) == str(KEYS) == "Credentials(access_key='reader-1')"


@pytest.mark.parametrize(
    ("access_key", "secret_key", "words"),
    [("", "s", "the access key is empty"), ("reader-1", "", "the secret key of access key 'reader-1' is empty")],
)
def test_empty_keys_are_refused(access_key: str, secret_key: str, words: str) -> None:
    with pytest.raises(ClientError, match=words):
        Credentials(access_key, secret_key)
