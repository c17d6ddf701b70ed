"""Asks who else is a master of a broker's name, and has each of them prove it: within some seconds, all at once.

Asked are the brokers of that name that the name servers know, the other brokers of the pair that this store has met
(`slipstream.peers`), and addresses that the caller adds. A name server's answer is no proof: it only says where to ask.
A broker that does not answer, or one of RocketMQ's, says nothing.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import EngineError
from engine.net.tls import RenewedContext
from engine.protocol.broker.log_requests import (
    Extent,
    Wanted,
    digests_fields,
    digests_of,
    extent_of,
    is_extent_signed,
    standing_of,
)
from engine.protocol.ha import reign
from engine.protocol.ha.hello import NONCE_BYTES
from engine.protocol.ha.reign import Standing, Verdict
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.peers.name_servers import LookupFailed, looked_up
from engine.remoting.sockets.client import RemotingClient
from engine.replication import ha_facts
from engine.settings.config import BrokerConfig
from engine.shared_memory.addresses import host_and_port
from ipc.clock import wall_ms
from ipc.host_port import host_port
from store.errors import StoreError
from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles
from store.notes import peers
from store.notes.epochs import Fence
from store.reading import log_ranges
from store.recovery.recovery import recover_read_only
from store.tables import fastjson

SECONDS, OF_ONE_SECONDS = 6.0, 2.0  # a busy machine takes its time, and a second master costs more
BODY_BYTES_MAX = 16 << 20
MASTER_ID, ASKED_MAX = 0, 16
WRONG = (EngineError, StoreError, LookupError, TypeError, ValueError, AttributeError)


class OwnLog(NamedTuple):
    """The log that another broker's is compared with.

    `is_asked`, where it is given, holds the ranges that are asked for just now: our own broker answers none of
    them, so that nobody can hand the question on to us.
    """

    files: SegmentFiles
    extent: reign.Extent
    is_asked: set[tuple[int, int]] | None = None


class Circle(NamedTuple):
    """The facts by which a broker asks for masters of its name: who it is, where to ask, what it can check."""

    cluster: str
    broker_name: str
    own: str  # the address at which we serve
    name_servers: tuple[str, ...]
    peers: tuple[str, ...]
    secret: bytes
    how: RenewedContext | None
    log: Callable[[], OwnLog]  # called only where a claim is to be proved by it


class Master(NamedTuple):
    """A broker of our name, at its remoting address, and what it says of itself."""

    address: str
    extent: Extent
    is_signed: bool = False
    is_registered: bool = False  # whether a name server listed it

    @property
    def fence(self) -> Fence:
        """Return what the master that replaces this one remembers of it."""
        return Fence(self.extent.epoch, self.extent.identity, self.extent.ha_address, wall_ms())


class Judged(NamedTuple):
    """A master of our name, and what it is to us."""

    master: Master
    verdict: Verdict


def judged(circle: Circle, own: Standing, seconds: float = SECONDS) -> list[Judged]:
    """Return every other broker of our name that says it is a master; first the one that must be obeyed."""
    masters = []
    for one in others(circle, seconds):
        try:
            its = standing_of(one.extent)
        except ValueError:
            continue
        verdict = reign.judge(own, its, is_proved=False)
        if verdict is Verdict.UNPROVEN and is_proved(circle, own, its, one):
            verdict = Verdict.YIELD
        if verdict is not Verdict.NOBODY:
            masters.append(Judged(one, verdict))
    return in_order(masters)


def in_order(masters: Iterable[Judged]) -> list[Judged]:
    """The one that must be obeyed first."""
    order = list(Verdict)
    return sorted(masters, key=lambda each: (order.index(each.verdict), -each.master.extent.epoch))


def others(circle: Circle, seconds: float = SECONDS) -> list[Master]:
    """Return every other broker of our name that answers, each once."""
    until = time.monotonic() + seconds
    listed = registered(circle, until)
    places = [one for one in dict.fromkeys((*listed, *circle.peers)) if one != circle.own][:ASKED_MAX]
    answers = _all(lambda address: asked(circle, address, until), places)
    return [one._replace(is_registered=one.address in listed) for one in answers if one is not None]


def registered(circle: Circle, until: float) -> list[str]:
    """Return where the name servers say that other brokers of our name are, each once."""
    lists = _all(lambda name_server: _registered(circle, name_server, until), circle.name_servers)
    return [one for one in dict.fromkeys(chain.from_iterable(lists)) if one not in ("", circle.own)]


def unreached(circle: Circle, known_at: Iterable[str], before: Iterable[str]) -> dict[str, bool]:
    """Brokers that these name servers call the master of our name, although they have answered our own registration as
    that (True), and those `before`; but none that answers us. A name server's word is no proof of anything."""
    until = time.monotonic() + SECONDS
    lists = _all(lambda name_server: _registered(circle, name_server, until), known_at)
    masters = {some[0] for some in lists if some and some[0] not in ("", circle.own)}
    places = list(dict.fromkeys((*masters, *before)))[:ASKED_MAX]
    answers = _all(lambda address: asked(circle, address, until), places)
    return {place: place in masters for place, answer in zip(places, answers, strict=True) if answer is None}


def keep_registered(circle: Circle, root: Path) -> None:
    """Keep these places in `slipstream.peers`: of two brokers that are promoted at once, name servers, which have one
    master of a name, soon tell of one alone. Raises OSError."""
    peers.add(root, registered(circle, time.monotonic() + OF_ONE_SECONDS))


def living_master(circle: Circle, ha_address: tuple[str, int] | None, seconds: float = SECONDS) -> str | None:
    """Return where a master of this name answers, whatever its epoch; None without one. A Slipstream master says so;
    a RocketMQ master is one at an address from a name server, or `ha_address`, that accepts connections.
    """
    known = others(circle, seconds)
    for one in known:
        if one.extent.is_master:
            return one.address
    answered = {one.address for one in known}
    lists = _all(lambda each: _registered(circle, each, time.monotonic() + OF_ONE_SECONDS), circle.name_servers)
    places = [one for some in lists for one in some[:1] if one not in ("", circle.own, *answered)]
    if ha_address is not None and host_and_port(ha_address[0], ha_address[1] - 1) not in answered:
        places.append(host_and_port(*ha_address))
    return next((place for place in places if _takes_connections(place)), None)


def _takes_connections(place: str) -> bool:
    try:
        socket.create_connection(host_port(place) or ("", 0), OF_ONE_SECONDS).close()
    except OSError:
        return False
    return True


def _all(ask: Callable[[str], Any], places: Iterable[str]) -> list[Any]:
    """Return the answers of all places, which are asked at the same time."""
    places = list(places)
    if len(places) < 2:
        return [ask(place) for place in places]
    with ThreadPoolExecutor(min(8, len(places)), "asks") as threads:
        return list(threads.map(ask, places))


def asked(circle: Circle, address: str, until: float, *, is_of_any_name: bool = False) -> Master | None:
    """The broker at that address, if it is of our name; None where none answers."""
    nonce = os.urandom(NONCE_BYTES)
    try:
        with RemotingClient(address, _left(until), circle.how) as client:
            answer = client.ask(RequestCode.GET_LOG_EXTENT, {"nonce": nonce.hex()})
            extent = extent_of(answer.body)
    except WRONG:
        return None
    if not is_of_any_name and (extent.cluster, extent.broker_name) != (circle.cluster, circle.broker_name):
        return None
    return Master(address, extent, is_extent_signed(circle.secret, nonce, answer))


def is_proved(circle: Circle, own: Standing, its: Standing, one: Master) -> bool:
    """Whether it has shown what no stranger can: the secret; without one a log that goes on from ours."""
    if circle.secret:
        return one.is_signed
    if not reign.fits(own.entries, its.entries):
        return False
    try:
        log = circle.log()
    except (StoreError, OSError):
        return False
    its_log = reign.Extent(one.extent.min_offset, one.extent.max_offset)
    if log.extent.low == log.extent.high:
        return True  # an empty log has nothing to lose, and nothing to compare
    common = reign.common_range(own.entries, its.entries, log.extent, its_log)
    ranges = reign.chosen_ranges(common, random.SystemRandom())
    return bool(ranges) and all(_has_range(circle, log, one.address, each) for each in ranges)


def _has_range(circle: Circle, log: OwnLog, address: str, wanted: reign.Extent) -> bool:
    pending = log.is_asked if log.is_asked is not None else set()
    pending.add(wanted)
    try:
        with RemotingClient(address, OF_ONE_SECONDS, circle.how) as client:
            fields = digests_fields(Wanted(wanted.low, wanted.high, 1))
            said = digests_of(client.ask(RequestCode.GET_LOG_DIGESTS, fields).body, 1)
        return said == log_ranges.digests(log.files, wanted.low, wanted.high, 1)
    except WRONG:
        return False
    finally:
        pending.discard(wanted)


def _left(until: float) -> float:
    return max(0.05, min(OF_ONE_SECONDS, until - time.monotonic()))


def _registered(circle: Circle, name_server: str, until: float) -> list[str]:
    """Return where that name server says that brokers of our name are: first the master, "" where it knows none."""
    if time.monotonic() >= until:
        return []
    try:
        with RemotingClient(name_server, _left(until), circle.how) as client:
            body = client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
        group = fastjson.loads(body, "the cluster's brokers", BODY_BYTES_MAX)["brokerAddrTable"][circle.broker_name]
        if group["cluster"] != circle.cluster:
            return []
        by_id = {int(number): address for number, address in group["brokerAddrs"].items() if isinstance(address, str)}
        return [by_id.pop(MASTER_ID, ""), *by_id.values()][:ASKED_MAX]
    except WRONG:
        return []


def circle_of(config: BrokerConfig, how: RenewedContext | None, log: Callable[[], OwnLog]) -> Circle:
    """The circle of a broker with these settings. Raises OwnFileDamaged for a secret that cannot be read."""
    root = config.store_path_root_dir
    own = f"{config.broker_ip1}:{config.listen_port}"
    names = config.broker_cluster_name, config.broker_name
    name_servers = tuple[str, ...]()
    with suppress(LookupFailed):  # as where none of them answers
        name_servers = looked_up(config)
    return Circle(*names, own, name_servers, peers.read(root), ha_facts.secret_of(config), how, log)


def log_at_rest(config: BrokerConfig) -> OwnLog:
    """Our own log, while no broker runs on it, up to where it is whole. Raises what recovery raises."""
    files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
    if not config.store_path_commit_log.is_dir() or not files.base_offsets():
        return OwnLog(files, reign.Extent(0, 0))
    directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
    there = recover_read_only(directory, check_crc=False)
    return OwnLog(files, reign.Extent(there.min_physical_offset, there.max_physical_offset))
