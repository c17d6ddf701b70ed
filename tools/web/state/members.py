"""The brokers that name servers know: asked by remoting now and then, and remembered in between."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from engine.clients.admin import AdminClient, AdminError, Member
from engine.remoting.sockets.client import PeerRefused, PeerUnreachable
from store.errors import StoreError

if TYPE_CHECKING:
    from engine.net.tls import RenewedContext

Json = dict[str, Any]
ASKING_SECONDS = 3.0
EVERY_SECONDS = 10.0
MEMBERS_MAX = 64
SHOWN = {
    "commitLogMaxOffset": "maxOffset", "commitLogMinOffset": "minOffset", "putTps": "putTps",
    "brokerVersionDesc": "version", "commitLogDiskRatio": "diskRatio",
}  # fmt: skip


class Members:
    """The last answers of members; one thread asks at a time, the others take what there is."""

    def __init__(self, name_servers: str, how: RenewedContext | None) -> None:
        self._name_servers, self._how = name_servers, how
        self._lock, self._asked_at = threading.Lock(), 0.0
        self._last: Json | None = None

    def known(self) -> Json | None:
        """Clusters, brokers and their figures; None where no name server was named, or the first is still asked."""
        if self._name_servers and self._lock.acquire(blocking=False):
            try:
                if self._last is None or time.monotonic() - self._asked_at > EVERY_SECONDS:
                    self._last = self._ask()
                    self._asked_at = time.monotonic()
            finally:
                self._lock.release()
        return self._last

    def _ask(self) -> Json:
        with AdminClient(self._name_servers, ASKING_SECONDS, self._how) as admin:
            try:
                members = admin.members()
            except (AdminError, PeerRefused, PeerUnreachable, StoreError, KeyError, TypeError, ValueError) as error:
                return {"nameServers": self._name_servers, "error": " ".join(str(error).split()), "brokers": []}
            rows = [_member(admin, one) for one in members[:MEMBERS_MAX]]
        return {"nameServers": self._name_servers, "brokers": rows, "more": max(0, len(members) - MEMBERS_MAX)}


def _member(admin: AdminClient, one: Member) -> Json:
    row = {"cluster": one.cluster, "broker": one.broker_name, "brokerId": one.broker_id, "address": one.address}
    try:
        figures = admin.runtime(one.address)
    except (PeerRefused, PeerUnreachable, StoreError, KeyError, TypeError, ValueError) as error:
        return {**row, "error": " ".join(str(error).split())}
    return {**row, **{ours: str(figures[theirs])[:200] for theirs, ours in SHOWN.items() if theirs in figures}}
