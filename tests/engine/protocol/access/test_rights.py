"""Who may ask what: each code has one kind; the default leaves an unmodified cluster alone; lists open and close."""

from __future__ import annotations

import pytest

from engine.protocol.access.allow_list import parsed
from engine.protocol.access.rights import Rules, refusal
from engine.protocol.broker.requests import BrokerRequests, ShownFacts
from engine.protocol.naming.name_server import NameServer
from engine.protocol.remoting.codes import _BY_KIND, KINDS, RequestCode, RequestKind
from engine.protocol.tables.defaults import Identity
from engine.protocol.tables.metadata import Metadata
from store.compat import LINES, line_of

PEER, OWN = "198.51.100.7", "198.51.100.1"
TABLES = (21, 43, 45, 60, 61, 201, 402)  # of an unmodified slave
CLIENTS = (34, 35, 105, 106, 28, 901, 907, 300)
REGISTRATIONS = (103, 104, 217, 322, 904)
CHANGES = (
    17, 18, 25, 100, 102, 200, 205, 207, 215, 216, 222, 225, 306, 309, 314, 316, 318, 323, 327, 329, 353, 29003,
)  # fmt: skip
SETTINGS = (26, 101, 219, 319)
MESSAGES = (10, 11, 12, 15, 33, 36, 37, 41, 42, 310, 320, 324, 325, 361, 370)


def answered(rules: Rules, peer: str = PEER, own: str = OWN) -> set[int]:
    """The codes that a connection is not refused."""
    rights = rules.rights_of(peer, own)
    return {int(code) for code in RequestCode if refusal(code, rights) is None}


def test_every_code_has_one_kind() -> None:
    assert set(KINDS) == set(RequestCode)
    assert sum(map(len, _BY_KIND.values())) == len(RequestCode)


@pytest.mark.parametrize("compat", list(LINES))
def test_every_request_that_a_server_answers_has_a_kind(compat: str) -> None:
    metadata = Metadata(Identity(line_of(compat), "c", "b"), {}, 0)
    broker = BrokerRequests(compat, metadata, ShownFacts(dict, dict, dict), is_slave=False)
    assert set(broker.handlers) | set(NameServer(compat).handlers) <= set(KINDS)


def test_kinds_are_what_the_requests_do() -> None:
    by_kind = {kind: {code for code, of in KINDS.items() if of is kind} for kind in RequestKind}
    assert by_kind[RequestKind.TABLES] == set(TABLES)
    assert by_kind[RequestKind.REGISTRATION] == set(REGISTRATIONS)
    assert by_kind[RequestKind.CHANGE] == set(CHANGES)
    assert by_kind[RequestKind.SETTINGS] == set(SETTINGS)
    assert by_kind[RequestKind.MESSAGES] == set(MESSAGES)
    assert by_kind[RequestKind.LOOK] >= set(CLIENTS)


def test_the_default_leaves_an_unmodified_cluster_alone_and_changes_to_this_host() -> None:
    everything = set(map(int, RequestCode))
    assert answered(Rules()) == everything - set(CHANGES) - set(SETTINGS)
    for peer, own in ((OWN, OWN), ("127.0.0.1", "127.0.0.1"), ("::1", "::1")):
        assert answered(Rules(), peer, own) == everything
    assert Rules().rights_of(PEER, OWN).may_connect


def test_lists_open_and_close() -> None:
    everything, near, far = set(map(int, RequestCode)), parsed("198.51.100.0/24"), parsed("192.0.2.0/24")
    assert answered(Rules(administer=near)) == everything
    assert answered(Rules(administer=near, register=far)) == everything - set(REGISTRATIONS)
    assert answered(Rules(administer=far, register=near)) == everything - set(CHANGES) - set(SETTINGS)
    assert Rules(connect=near).rights_of(f"::ffff:{PEER}", OWN).may_connect
    assert answered(Rules(administer=near, follow=far)) == everything - {29002}
    assert not Rules(connect=far).rights_of(PEER, OWN).may_connect
    assert Rules(connect=far, register=far).rights_of(OWN, OWN).may_connect


def test_a_refusal_names_the_request_the_address_and_the_key() -> None:
    rights = Rules(register=parsed("192.0.2.1")).rights_of(f"::ffff:{PEER}", OWN)
    told = refusal(RequestCode.DELETE_TOPIC_IN_BROKER, rights)
    assert told is not None and "DELETE_TOPIC_IN_BROKER" in told and PEER in told and "adminAllowList" in told
    told = refusal(RequestCode.REGISTER_BROKER, rights)
    assert told is not None and "REGISTER_BROKER" in told and "registerAllowList" in told
    assert refusal(999_999, rights) is None  # answered "not supported"
