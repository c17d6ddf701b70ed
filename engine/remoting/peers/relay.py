"""Lets a master that another one cannot reach prove itself by way of the name servers, and believes such a proof.

What is said stands in `engine.protocol.ha.relayed`. Spoken to is only a master that is listed after this one, and that
does not answer. Each look reads what the name servers hand on; `texts` is what this master registers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable

from engine.protocol.broker.log_requests import Extent, extent_body, extent_of, standing_of
from engine.protocol.ha import reign, relayed
from engine.protocol.ha.hello import NONCE_BYTES
from engine.protocol.ha.reign import Standing, Verdict
from engine.protocol.ha.relayed import Relayed
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.peers.fencing import BODY_BYTES_MAX, MASTER_ID, OF_ONE_SECONDS, WRONG, Circle, Judged, Master
from engine.remoting.sockets.client import RemotingClient
from store.message.topics import SELF_TEST_TOPIC
from store.tables import fastjson


class Relay:
    """One master's side."""

    def __init__(self) -> None:
        self._nonce, self._to, self._known = b"", b"", dict[str, Judged]()
        self.texts: tuple[str, ...] = ()

    def look(
        self,
        circle: Circle,
        known_at: Iterable[str],
        own: Standing,
        extent_now: Callable[[], Extent],
        not_reached: Collection[str],
    ) -> list[Judged]:
        """The masters among those that have proved themselves so; the next number for them is said with `texts`.

        `extent_now` reads this master's files: only a claim needs it.
        """
        self._known = {address: one for address, one in self._known.items() if address in not_reached}
        if not (circle.secret and not_reached):
            self._nonce, self._to, self.texts = b"", b"", ()
            return []
        self._nonce = self._nonce or os.urandom(NONCE_BYTES)
        to = self._to
        for name_server in known_at:
            for address, said in _heard(circle, name_server).items():
                if address in not_reached:
                    to = said.nonce
                    self._take(circle, own, address, said)
        if to != self._to or not self.texts:
            self._to = to
            extent = extent_now()
            claim = json.dumps(extent_body(extent._replace(epochs=extent.epochs[-1:]))).encode()
            self.texts = relayed.texts_of(relayed.signed(circle.secret, self._nonce, to, claim))
        return list(self._known.values())

    def _take(self, circle: Circle, own: Standing, address: str, said: Relayed) -> None:
        if not relayed.is_proved(circle.secret, self._nonce, said):
            return
        try:
            extent = extent_of(said.claim)
            verdict = reign.judge(own, standing_of(extent), is_proved=True)
        except WRONG:
            return
        is_of_name = (extent.cluster, extent.broker_name) == (circle.cluster, circle.broker_name)
        if is_of_name and verdict is not Verdict.NOBODY:
            self._known[address] = Judged(Master(address, extent, is_signed=True), verdict)


def _heard(circle: Circle, name_server: str) -> dict[str, Relayed]:
    """What the masters of our name have registered there, by address."""
    try:
        with RemotingClient(name_server, OF_ONE_SECONDS, circle.how) as client:
            body = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": SELF_TEST_TOPIC}).body
        route = fastjson.loads(body, "a route", BODY_BYTES_MAX)
        masters = {
            address
            for broker in route["brokerDatas"]
            if broker["brokerName"] == circle.broker_name
            for number, address in broker["brokerAddrs"].items()
            if int(number) == MASTER_ID
        }
        said = {at: relayed.relayed_of(texts or ()) for at, texts in route["filterServerTable"].items()}
    except WRONG:
        return {}
    return {at: one for at, one in said.items() if one is not None and at in masters and at != circle.own}
