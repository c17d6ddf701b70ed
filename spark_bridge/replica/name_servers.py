"""Asks name servers for a cluster's brokers, and those of this host for the directory of their store.

Implements: the client's side of GET_BROKER_CLUSTER_INFO and GET_BROKER_CONFIG, with JSON headers (spec: remoting, 1,
    5, 8). This package imports nothing of the engine, so the two requests are written out here.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Any

from store.errors import MalformedData
from store.tables import fastjson

CLUSTER_INFO, BROKER_CONFIG, SUCCESS = 106, 26, 0
TIMEOUT_SECONDS = 5.0
FRAME_BYTES_MAX = 16 << 20
PORT_DEFAULT = 9876
LENGTHS = Struct(">iI")
REQUEST_VERSION = 397  # MQVersion of 4.9.7: what the request says its sender is


class NameServersUnreachable(OSError):
    """None of the name servers answered."""

    code = "NAME_SERVERS_UNREACHABLE"


class NoReplicaHere(OSError):
    """A broker has no replica whose files are on this host."""

    code = "NO_REPLICA_HERE"

    def __init__(self, told: Sequence[str]) -> None:
        text = "; ".join(told)
        super().__init__(f"{text}. Run Spark where each broker has a replica, or give the directories as path")


def find_replicas(servers: Sequence[str]) -> tuple[list[str], list[str]]:
    """Roots of one replica of each broker that is on this host, and a sentence for each broker that has none.

    Of several the one with the lowest id, the master if it is here. Raises NameServersUnreachable.
    """
    roots, missing = [], []
    for name, addresses in sorted(_brokers(servers).items()):
        tried: list[str] = []
        root = None
        for _, address in sorted(addresses.items()):
            root, told = _root_of(name, address)
            if root is not None:
                roots.append(root)
                break
            tried.append(f"{address}: {told}")
        if root is None:
            missing.append(f"broker {name!r} has no replica on this host ({', '.join(tried) or 'no address'})")
    if not roots and not missing:
        raise NameServersUnreachable(f"name servers {';'.join(servers)} know no broker; start one, or give path")
    return roots, missing


def _brokers(servers: Sequence[str]) -> dict[str, dict[int, str]]:
    """Broker names with the addresses of their replicas by id, from the first name server that answers."""
    failures = []
    for server in servers:
        try:
            body = ask(server, CLUSTER_INFO)
            table = fastjson.loads(body, f"answer of {server}")["brokerAddrTable"]
            return {
                str(name): {int(number): str(address) for number, address in entry["brokerAddrs"].items()}
                for name, entry in table.items()
            }
        except (OSError, MalformedData, KeyError, TypeError, ValueError, AttributeError) as error:
            failures.append(f"{server}: {error}")
    raise NameServersUnreachable(f"no name server answers ({'; '.join(failures)}); start one, or give path")


def _root_of(name: str, address: str) -> tuple[str | None, str]:
    """The root of the store that the broker at this address serves, if it is on this host; else why not."""
    if not _is_here(address):
        return None, "another host"
    try:
        settings = _properties(ask(address, BROKER_CONFIG))
    except (OSError, ValueError) as error:
        return None, f"does not answer ({error})"
    root = settings.get("storePathRootDir", "")
    if settings.get("brokerName", name) != name:
        return None, f"is broker {settings.get('brokerName')!r} by now"
    if not root or not Path(root).is_dir():
        return None, f"its store {root!r} is not in this file system"
    return root, ""


def _is_here(address: str) -> bool:
    """Whether this host has the address: only then can a socket be bound to it."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(*_host_port(address), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind((place[0], 0, *place[2:]))
    except (OSError, ValueError):
        return False
    return True


def ask(address: str, code: int, ext: Mapping[str, str] | None = None) -> bytes:
    """The body of a successful answer. Raises OSError (no answer in time, hung up) and ValueError (another answer)."""
    fields = {"code": code, "flag": 0, "language": "PYTHON", "opaque": 1, "version": REQUEST_VERSION}
    fields |= {"serializeTypeCurrentRPC": "JSON", "extFields": dict(ext or {})}
    header = json.dumps(fields).encode()
    with socket.create_connection(_host_port(address), TIMEOUT_SECONDS) as connection:
        connection.settimeout(TIMEOUT_SECONDS)
        connection.sendall(LENGTHS.pack(4 + len(header), len(header)) + header)
        length = int.from_bytes(_received(connection, 4), signed=True)
        if not 4 <= length <= FRAME_BYTES_MAX:
            raise ValueError(f"{address} does not speak RocketMQ's remoting: a frame of {length} bytes")
        frame = _received(connection, length)
    return _body(address, frame)


def _body(address: str, frame: bytes) -> bytes:
    word = int.from_bytes(frame[:4])
    header_bytes = word & 0xFFFFFF
    if word >> 24 or header_bytes > len(frame) - 4:
        raise ValueError(f"{address} answers with a header that is not JSON")
    answer: Any = json.loads(frame[4 : 4 + header_bytes])
    code = answer.get("code") if isinstance(answer, dict) else None
    if code != SUCCESS:
        told = answer.get("remark") if isinstance(answer, dict) else ""
        raise ValueError(f"{address} answers with code {code} {told or ''}".rstrip())
    return frame[4 + header_bytes :]


def _received(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(min(count - len(data), 1 << 16))
        if not part:
            raise ConnectionResetError("hung up before its answer was whole")
        data += part
    return bytes(data)


def _host_port(address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    if not separator or address.endswith("]"):
        return address.strip("[]"), PORT_DEFAULT
    return host.strip("[]"), int(port)


def _properties(body: bytes) -> dict[str, str]:
    """`name=value` lines, as MixAll.properties2String writes them."""
    pairs = [line.partition("=") for line in body.decode("utf-8", "replace").splitlines() if "=" in line]
    return {name.strip(): value.strip() for name, _, value in pairs}
