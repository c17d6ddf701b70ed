"""Asks name servers for a cluster's brokers, and those of this host for the directory of their store.

Implements: the client's side of GET_BROKER_CLUSTER_INFO and GET_BROKER_CONFIG (spec: remoting, 5, 8)
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from engine.protocol.remoting.codes import RequestCode
from spark_bridge.replica.remoting import Conversation, Question, place_of, properties
from spark_bridge.replica.tls import Tls
from store.errors import MalformedData
from store.tables import fastjson

TIMEOUT_S = 5.0
MASTER = 0  # its brokerId


class NameServersUnreachable(OSError):
    """Raised when no name server answered.

    Next: `slipstream doctor HOST:9876`; is that a name server?
    """

    code = "NAME_SERVERS_UNREACHABLE"


class NoReplicaHere(OSError):
    """Raised when a broker has no replica on this host.

    Next: run Spark where each broker has a replica, or give the directories as `path`.
    """

    code = "NO_REPLICA_HERE"

    def __init__(self, missing: Sequence[str]) -> None:
        text = "; ".join(missing)
        super().__init__(f"{text}. Run Spark where each broker has a replica, or give the directories as path")


def find_replicas(servers: Sequence[str], tls: Tls | None = None) -> tuple[list[str], list[str]]:
    """Roots of one replica of each broker that is on this host, and a sentence for each broker that has none.

    Of several the one with the lowest id, the master if it is here. Raises NameServersUnreachable.
    """
    roots, missing = [], []
    for name, addresses in sorted(_brokers(servers, tls).items()):
        tried: list[str] = []
        root = None
        for _, address in sorted(addresses.items()):
            root, reason = _root_of(name, address, tls)
            if root is not None:
                roots.append(root)
                break
            tried.append(f"{address}: {reason}")
        if root is None:
            missing.append(f"broker {name!r} has no replica on this host ({', '.join(tried) or 'no address'})")
    if not roots and not missing:
        raise NameServersUnreachable(f"name servers {';'.join(servers)} know no broker; start one, or give path")
    return roots, missing


def _brokers(servers: Sequence[str], tls: Tls | None = None) -> dict[str, dict[int, str]]:
    """Broker names with the addresses of their replicas by id, from the first name server that answers."""
    failures = []
    for server in servers:
        try:
            body = ask(server, RequestCode.GET_BROKER_CLUSTER_INFO, tls)
            table = fastjson.loads(body, f"answer of {server}")["brokerAddrTable"]
            return {
                str(name): {int(number): str(address) for number, address in entry["brokerAddrs"].items()}
                for name, entry in table.items()
            }
        except (OSError, MalformedData, KeyError, TypeError, ValueError, AttributeError) as error:
            failures.append(f"{server}: {error}")
    raise NameServersUnreachable(f"no name server answers ({'; '.join(failures)}); start one, or give path")


def _root_of(name: str, address: str, tls: Tls | None) -> tuple[str | None, str]:
    """The root of the store that the broker at this address serves, if it is on this host; else why not."""
    if not _is_here(address):
        return None, "another host"
    try:
        settings = properties(ask(address, RequestCode.GET_BROKER_CONFIG, tls))
    except (OSError, ValueError) as error:
        return None, f"does not answer ({error})"
    root = settings.get("storePathRootDir", "")
    if settings.get("brokerName", name) != name:
        return None, f"is broker {settings.get('brokerName')!r} now"
    if not root or not Path(root).is_dir():
        return None, f"its store {root!r} is not in this file system"
    return root, ""


def _is_here(address: str) -> bool:
    """Whether this host has the address: only then can a socket be bound to it."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(*place_of(address), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind((place[0], 0, *place[2:]))
    except (OSError, ValueError):
        return False
    return True


def master_of(servers: Sequence[str], broker_name: str, tls: Tls | None = None) -> str:
    """The address of a broker's master. Raises NameServersUnreachable, ValueError without one."""
    address = _brokers(servers, tls).get(broker_name, {}).get(MASTER)
    if address is None:
        raise ValueError(f"name servers {';'.join(servers)} know no master of broker {broker_name!r}")
    return address


def ask(address: str, code: RequestCode, tls: Tls | None = None) -> bytes:
    """The body of a successful answer. Raises OSError (no answer in time, hung up) and ValueError (another answer)."""
    with Conversation(address, TIMEOUT_S, tls) as conversation:
        return bytes(conversation.need(Question(code)).body)
