"""`slipstream clients` and `slipstream groups`: who is connected to a broker, and how far its groups are."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from engine.net.printable import printable
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.sockets.client import RemotingClient
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from store.tables import fastjson
from tools.common import watch as screen
from tools.common.tls import tls_of
from tools.show.table import table_of

Json = dict[str, Any]
ANSWER_SECONDS = 10.0


def overview(store: str, group: str | None = None) -> Json:
    """Return what the broker on STORE says of clients and groups, and what its fronts count.

    Raises NoBroker, PeerRefused.
    """
    running = extent.require_running(store)
    with closing(BrokerCounters.attach(running.region_directory)) as counters:
        fronts = [
            {"connections": one.connections.read(), "pullsHeld": one.pulls_held.read(), "pulls": one.pulls.read(),
             "sends": one.sends.read(), "sendsInFlight": one.sends_in_flight.read()}
            for one in counters.fronts[: int(running.settings.get("frontProcesses", 1))]
        ]  # fmt: skip
    with RemotingClient(str(running.settings["storeHost"]), ANSWER_SECONDS, tls_of()) as client:
        answer = client.ask(RequestCode.GET_CLIENTS, {"group": group} if group is not None else {})
    said: Json = fastjson.loads(answer.body, "the broker's clients")
    return {**said, "fronts": fronts}


def _fronts(fronts: list[Json]) -> Text:
    totals = {name: sum(front[name] for front in fronts) for name in fronts[0]}
    return Text(
        f"{totals['connections']:,} connections, {totals['pullsHeld']:,} held pulls; so far "
        f"{totals['sends']:,} messages sent, {totals['pulls']:,} pulls answered\n"
    )


def _clients(said: Json) -> RenderableType:
    if not said["clients"]:
        return Group(_fronts(said["fronts"]), Text("no client has identified itself"))
    table = table_of("client", "address", "language", "version", "silent", "produces for", "consumes for")
    for column in table.columns:
        column.no_wrap, column.overflow = False, "fold"  # what a narrow terminal has no room for goes on below
    for one in said["clients"]:
        groups = (", ".join(map(printable, one[kind])) or "-" for kind in ("producerOf", "consumerOf"))
        silent = f"{one['silentSeconds']:.1f} s"
        row = (one["clientId"], one["address"], one["language"], str(one["version"]), silent)
        table.add_row(*map(printable, row), *groups)
    return Group(_fronts(said["fronts"]), table)


def _groups(said: Json) -> RenderableType:
    table = table_of("group", "members", "topic", "queues", "lag", "lag in time")
    for group in said["groups"]:
        by_topic: dict[str, list[Json]] = {topic: [] for topic in group["topics"]}
        for queue in group["queues"]:
            by_topic.setdefault(queue["topic"], []).append(queue)
        for number, (topic, queues) in enumerate(sorted(by_topic.items())):
            first = (group["group"], str(len(group["members"]))) if not number else ("", "")
            seconds = max((queue["lagSeconds"] for queue in queues), default=0.0)
            row = (*first, topic, str(len(queues)), f"{sum(queue['lag'] for queue in queues):,}", f"{seconds:.1f} s")
            table.add_row(*map(printable, row))
    if not said["groups"]:
        return Group(_fronts(said["fronts"]), Text("no group has consumed anything"))
    return Group(_fronts(said["fronts"]), table)


def _one_group(said: Json, name: str) -> RenderableType:
    group = next((one for one in said["groups"] if one["group"] == name), None)
    if group is None:
        return Text(f"no group {printable(name)} has consumed anything")
    members = "\n".join(f"  {printable(member)}" for member in group["members"]) or "  nobody"
    topics = ", ".join(f"{topic} ({filtered})" for topic, filtered in group["topics"].items()) or "nothing now"
    table: Table = table_of("topic", "queue", "offset", "end", "lag", "lag in time")
    for one in group["queues"]:
        row = (str(one["queueId"]), f"{one['offset']:,}", f"{one['end']:,}", f"{one['lag']:,}")
        table.add_row(printable(one["topic"]), *row, f"{one['lagSeconds']:.1f} s")
    return Group(Text(f"members:\n{members}\nsubscribes to {printable(topics)}\n"), table)


def clients(store: str, as_json: bool, watch: bool) -> int:
    """Once, or until Ctrl-C. Raises NoBroker, PeerUnreachable."""
    return _show(store, None, as_json, watch)


def groups(store: str, group: str | None, as_json: bool, watch: bool) -> int:
    """Once, or until Ctrl-C. Raises NoBroker, PeerUnreachable."""
    return _show(store, group or "", as_json, watch)


def _show(store: str, group: str | None, as_json: bool, watch: bool) -> int:
    def view() -> RenderableType:
        said = overview(store, group or None)
        return _clients(said) if group is None else _one_group(said, group) if group else _groups(said)

    if as_json:
        shown = "clients" if group is None else "groups"
        kept = (shown, "fronts")
        screen.show_json(lambda: {name: overview(store, group or None)[name] for name in kept}, watch, shown)
    elif watch:
        screen.watch(view)
    else:
        screen.plain_console().print(view())
    return 0
