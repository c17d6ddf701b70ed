"""What `slipstream promote` makes sure of before a slave takes its master's place: who lives, whose log has what."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import NamedTuple

from engine.errors import EngineError
from engine.protocol.broker.log_requests import Extent, Wanted, digests_fields, digests_of, standing_of
from engine.protocol.ha import reign
from engine.protocol.ha.client import HaClientState
from engine.protocol.ha.reign import Standing
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.peers import fencing
from engine.remoting.peers.fencing import Circle, Master, OwnLog
from engine.remoting.peers.log_peer import NotOurs, asked_extent
from engine.remoting.sockets.client import RemotingClient
from engine.replication.ha_facts import secret_in
from engine.shared_memory import address_cursors
from engine.shared_memory.addresses import NOWHERE, host_and_port, split
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.region_directory import role_request
from ipc.clock import monotonic_ms
from store.errors import StoreError
from store.files.segment_files import SegmentFiles
from store.notes import epochs, peers
from store.reading import log_ranges
from store.reading.extent import Running
from tools.common.tls import tls_of

ALIVE_MS = 20_000  # haHousekeepingInterval: a connection that was silent for longer ends
ANSWER_SECONDS, GRACE_SECONDS, LOOK_SECONDS = 5.0, 2.0, 0.05
STEP_DOWN_SECONDS = 20.0  # the master asks us back, and compares the logs, before it answers
COMPARED_BYTES = 4 * log_ranges.BYTES_MAX  # the newest of both logs; those before them are vouched for by the epochs


class RoleRefused(EngineError):
    """Raised when a role may not be changed, or was not changed.

    Next: do what the end of the error says; `slipstream ha status STORE` shows both sides.
    """

    code = "ROLE_REFUSED"

    def __init__(self, store: Path, why: str, remedy: str) -> None:
        super().__init__(f"{store}: {why}; {remedy}")


class Slave(NamedTuple):
    """A running slave, while it is about to become the master."""

    store: Path
    broker: Running
    counters: BrokerCounters

    @property
    def can_ask(self) -> bool:
        """Whether this broker and an old master that knows these words have a name server or a secret in common: by
        these, the old one fences itself."""
        return bool(self.broker.settings.get("namesrvAddr") or self.broker.settings.get("haSecretFile"))

    @property
    def said_remoting(self) -> str | None:
        """Return where its master answers, as that said when connected; None: RocketMQ's, or of an earlier version."""
        text = address_cursors.text_of(self.counters.ha_client.remoting)
        return None if text == NOWHERE else text

    def circle(self) -> Circle:
        """Return what is needed to ask for masters. Raises OwnFileDamaged for a secret that cannot be read."""
        settings = self.broker.settings
        servers = tuple(filter(None, str(settings.get("namesrvAddr", "")).split(";")))
        names = str(settings["brokerClusterName"]), str(settings["brokerName"])
        secret = secret_in(str(settings.get("haSecretFile") or "") or None)
        asked = tuple(dict.fromkeys(filter(None, (self.said_remoting, self._beside_ha(), *peers.read(self.store)))))
        return Circle(*names, str(settings["storeHost"]), servers, asked, secret, tls_of(), self.log)

    def _beside_ha(self) -> str | None:
        """The port below the one that its log came from: an earlier version's listenPort, unless it is set apart."""
        host, port = split(address_cursors.text_of(self.counters.ha_client.master_address) or ":")
        return host_and_port(host, int(port) - 1) if host and port.isdecimal() and int(port) > 1 else None

    def log(self) -> OwnLog:
        """Return this broker's log, as it is now."""
        settings, counters = self.broker.settings, self.counters
        files = SegmentFiles(Path(settings["storePathCommitLog"]), int(settings["mappedFileSizeCommitLog"]))
        return OwnLog(files, reign.Extent(counters.min_physical_offset.read(), counters.max_physical_offset.read()))

    def standing(self) -> Standing:
        """Return the claim that this slave would make as a master."""
        return Standing(epochs.read(self.store).entries, is_master=True, is_confirmed=False)


def master_of(slave: Slave, given: str | None) -> Master | None:
    """Return the present master, if it answers: at the given address, or where it proves to be the master."""
    circle = slave.circle()
    if given is not None:
        return fencing.asked(circle, given, time.monotonic() + ANSWER_SECONDS)
    own = slave.standing()
    proved = [one for one in fencing.others(circle) if fencing.is_proved(circle, own, standing_of(one.extent), one)]
    of_masters = [one for one in proved if one.extent.is_master] or [
        one for one in proved if slave.said_remoting == one.address
    ]
    return max(of_masters, key=lambda one: one.extent.epoch, default=None)


def refuse_beside_master(slave: Slave, given: str | None) -> None:
    """Raise RoleRefused while a master is alive: two would write two histories. A dying one gets a moment."""
    store, until = slave.store, time.monotonic() + GRACE_SECONDS
    circle = slave.circle()._replace(peers=tuple(filter(None, (given, *slave.circle().peers))))
    while True:
        living = [one.address for one in fencing.others(circle) if one.extent.is_master]
        if not living and not _sends(slave.counters):
            return
        if time.monotonic() >= until:
            break
        time.sleep(LOOK_SECONDS)
    who = living[0] if living else address_cursors.text_of(slave.counters.ha_client.master_address)
    remedy = (
        f"make it step down without loss: `slipstream promote {store} --switch` (a Slipstream master that allows this"
        " host by adminAllowList); or stop it first; or --force, if nothing will write there again"
    )
    raise RoleRefused(store, f"its master {who} is running, and both would accept messages", remedy)


def _sends(counters: BrokerCounters) -> bool:
    """Whether somebody sends us a log: it was heard of late, and its HA port still takes connections."""
    words = counters.ha_client
    is_late = monotonic_ms() - words.last_read_ms.read() >= ALIVE_MS
    if words.state.read() != HaClientState.TRANSFER or is_late:
        return False
    host, port = split(address_cursors.text_of(words.master_address))
    try:
        socket.create_connection((host, int(port)), ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def switch(slave: Slave, old: Master | None, epoch: int, until: float) -> None:
    """Have the master become our slave, and wait until we have all that it has. Raises RoleRefused."""
    store = slave.store
    if old is None:
        why = "no Slipstream master with a proven identity answers, so none can step down"
        raise RoleRefused(store, why, "give its listenPort's address with --master HOST:PORT; or stop it, then promote")
    with RemotingClient(str(slave.broker.settings["storeHost"]), ANSWER_SECONDS, tls_of()) as client:
        own = asked_extent(client)
    if old.extent.is_master:
        require_same_history(slave, old)
        successor = {"epoch": str(epoch), "broker": own.identity, "master": own.ha_address}
        claiming = role_request.claiming(slave.counters.directory, epoch, STEP_DOWN_SECONDS)
        with claiming, RemotingClient(old.address, STEP_DOWN_SECONDS, tls_of()) as client:
            client.ask(RequestCode.STEP_DOWN, successor)
    extent = _await_extent(store, old.address, until)
    if extent.yields_to not in ("", own.identity) or (not old.extent.is_master and extent.yields_to != own.identity):
        whom = f"it is stepping down for {extent.yields_to}" if extent.yields_to else "it is no longer a master"
        raise RoleRefused(store, f"{old.address}: {whom}", "check who is the master: `slipstream ha status STORE`")
    while slave.counters.max_physical_offset.read() < extent.max_offset:
        if time.monotonic() > until:
            end = slave.counters.max_physical_offset.read()
            why = f"it has the log up to {end} of {extent.max_offset}, and the time is over"
            raise RoleRefused(store, why, f"nothing is lost; run `slipstream promote {store} --switch` again")
        time.sleep(LOOK_SECONDS)
    require_same_history(slave, Master(old.address, extent))


def require_same_history(slave: Slave, old: Master) -> None:
    """Raise RoleRefused unless this log is a part of the master's, by its reigns and its bytes.

    A log that is longer, or another one, would replace messages that are acknowledged.
    """
    own_log, extent = slave.log(), _asked(slave.store, old.address)
    entries, its = slave.standing().entries, standing_of(extent).entries
    compare = f"`slipstream replica check {slave.store} --with {old.address}` shows what each log has"
    if own_log.extent.high > extent.max_offset:
        lacks = own_log.extent.high - extent.max_offset
        why = f"AHEAD: it has {lacks} bytes that its master {old.address} lacks, whose messages would be lost"
        raise RoleRefused(slave.store, why, compare)
    low = max(own_log.extent.low, extent.min_offset, own_log.extent.high - COMPARED_BYTES)
    first = its[0].epoch if its else 0
    are_known = all(one in its for one in entries if one.epoch >= first)
    if not are_known or not _are_equal(own_log, old.address, low, own_log.extent.high):
        why = f"DIVERGED: its log is not a part of that of its master {old.address}, whose messages would be lost"
        raise RoleRefused(slave.store, why, compare)


def _are_equal(own: OwnLog, address: str, low: int, high: int) -> bool:
    with RemotingClient(address, ANSWER_SECONDS * 6, tls_of()) as client:
        for start in range(low, high, log_ranges.BYTES_MAX):
            end = min(start + log_ranges.BYTES_MAX, high)
            answer = client.ask(RequestCode.GET_LOG_DIGESTS, digests_fields(Wanted(start, end, 1)))
            if digests_of(answer.body, 1) != log_ranges.digests(own.files, start, end, 1):
                return False
    return True


def _asked(store: Path, address: str) -> Extent:
    try:
        with RemotingClient(address, ANSWER_SECONDS, tls_of()) as client:
            return asked_extent(client)
    except (EngineError, StoreError) as error:
        raise RoleRefused(store, f"the master at {address}: {error}", "read its log, then promote again") from None


def _await_extent(store: Path, address: str, until: float) -> Extent:
    """Return what that broker says of itself once it is no master. Raises RoleRefused."""
    why = "it does not answer"
    while time.monotonic() < until:
        try:
            with RemotingClient(address, ANSWER_SECONDS, tls_of()) as client:
                extent = asked_extent(client)
            if not extent.is_master:
                return extent
            why = "it is still the master"
        except NotOurs:
            raise
        except EngineError as error:
            why = str(error)
        time.sleep(LOOK_SECONDS)
    raise RoleRefused(store, f"the old master at {address}: {why}", "read its log, then promote again")


def require_no_living(store: Path, given: str | None) -> None:
    """Refuse like `refuse_beside_master`, for a store without a broker: only brokers that it met are asked.

    Its next start, which knows the settings, asks the others. Raises RoleRefused.
    """
    circle = Circle("", "", "", (), tuple(filter(None, (given, *peers.read(store)))), b"", tls_of(), _no_log)
    for address in circle.peers:
        one = fencing.asked(circle, address, time.monotonic() + ANSWER_SECONDS, is_of_any_name=True)
        if one is not None and one.extent.is_master:
            remedy = (
                "stop that one first; or start this one as a slave and `slipstream promote STORE --switch`; or --force,"
                " if nothing will write there again"
            )
            why = f"the master {one.extent.identity} at {address} is running, and both would accept messages"
            raise RoleRefused(store, why, remedy)


def _no_log() -> OwnLog:
    raise AssertionError("its identity is not proved")
