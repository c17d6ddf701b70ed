"""Name servers of a node: whether they answer, whether they agree, and whether it is this broker that they know."""

from __future__ import annotations

from contextlib import suppress

from engine.clients.admin import Member
from engine.errors import EngineError
from engine.monitoring.problems import TABLE
from engine.protocol.ha.wire import ReasonCode
from engine.protocol.naming.live_settings import SET_ASIDE
from engine.protocol.remoting.codes import RequestCode
from store.errors import StoreError
from tools.doctor.node import Asking, Node
from tools.doctor.rows import Row, ok, unknown, wrong

CHECK = "name servers"


def rows(node: Node, members: dict[str, list[Member] | str]) -> list[Row]:
    """Return what they say of this broker; `members` by name server, or why it did not answer."""
    if not members:
        return [ok(CHECK, "none is configured")]
    seen = []
    for name, said in members.items():
        if isinstance(said, str):
            next_step = f"`slipstream admin clusterList -n {name}`"
            seen.append(wrong(CHECK, ReasonCode.UNREACHABLE, said, next_step))
    known = {name: said for name, said in members.items() if not isinstance(said, str)}
    if known:
        seen += [_agreement(node, known), _identity(node, known)]
    return seen


def asked(addresses: list[str], asking: Asking) -> dict[str, list[Member] | str]:
    """Return all members that each name server knows, or why it does not say."""
    answers: dict[str, list[Member] | str] = {}
    for address in addresses:
        try:
            with asking.admin(address) as client:
                answers[address] = client.members()
        except (EngineError, StoreError, LookupError, TypeError, ValueError) as error:
            answers[address] = str(error)
    return answers


def damage(known: dict[str, list[Member] | str], asking: Asking) -> list[Row]:
    """What those that answered had to set aside of their key-value config; nothing of those that do not say it."""
    seen = []
    for address in (at for at, said in known.items() if not isinstance(said, str)):
        with suppress(EngineError, StoreError, LookupError, TypeError, ValueError), asking.admin(address) as client:
            if aside := client.config(address, RequestCode.GET_NAMESRV_CONFIG).get(SET_ASIDE):
                what = f"{address} set its damaged key-value config aside ({aside}): entries may be missing"
                seen.append(wrong(CHECK, TABLE, what, "restore what is missing, then remove that file on its host"))
    return seen


def others(node: Node, members: dict[str, list[Member] | str]) -> list[Member]:
    """The other brokers of this one's group, as the first name server that knows any tells them."""
    name, broker_id = node.setting("brokerName"), node.setting("brokerId")
    for said in members.values():
        if not isinstance(said, str):
            group = [one for one in said if one.broker_name == name and str(one.broker_id) != broker_id]
            if group:
                return group
    return []


def _agreement(node: Node, known: dict[str, list[Member]]) -> Row:
    """Check that name servers agree on the brokers of this one's group."""
    name = node.setting("brokerName")
    tables = {at: sorted(one for one in said if one.broker_name == name) for at, said in known.items()}
    first, *rest = tables
    for other in rest:
        if tables[other] != tables[first]:
            what = f"{first} and {other} know other brokers of {name}: {_text(tables[first])}; {_text(tables[other])}"
            return wrong(CHECK, ReasonCode.IDENTITY, what, f"`slipstream admin clusterList -n {other}`")
    said = "answers" if len(tables) == 1 else "answer and agree"
    return ok(CHECK, f"{', '.join(tables)} {said}: {_text(tables[first])}")


def _text(members: list[Member]) -> str:
    return ", ".join(f"{one.broker_name}:{one.broker_id} at {one.address}" for one in members) or "nobody"


def _identity(node: Node, known: dict[str, list[Member]]) -> Row:
    """Whether the name servers know this broker, and not another one with its name and id."""
    cluster, name, broker_id = (node.setting(key) for key in ("brokerClusterName", "brokerName", "brokerId"))
    own = node.running.settings["storeHost"] if node.running else node.address
    if not name:
        return unknown("identity", "its identity cannot be read from here", "run this on its own host")
    who = f"{name}:{broker_id} of cluster {cluster}"
    for at, said in known.items():
        same = [one for one in said if (one.broker_name, str(one.broker_id)) == (name, broker_id)]
        if not same:
            what = f"{at} does not know {who}; the broker's log says why (its registerAllowList?)"
            return wrong("identity", ReasonCode.IDENTITY, what, f"`slipstream admin clusterList -n {at}`")
        if node.running and same[0].address != own:
            what = f"{at} knows {who} at {same[0].address}, not at {own}: two brokers with the same id alternate"
            next_step = f"`slipstream doctor {same[0].address}`; give one of them another brokerId"
            return wrong("identity", ReasonCode.IDENTITY, what, next_step)
        if same[0].cluster != cluster:
            what = f"{at} has {name} in cluster {same[0].cluster}, its file says {cluster}"
            return wrong("identity", ReasonCode.IDENTITY, what, f"`slipstream admin clusterList -n {at}`")
    return ok("identity", f"{who}, registered at {own}")
