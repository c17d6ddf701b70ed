"""The pipeline: every cursor of every broker, how far behind the log's end it is, and the processes that move them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict

from engine.monitoring import ha_status
from engine.monitoring.ha_status import ConnectionStatus, HaStatus
from engine.monitoring.store_stats import stats
from engine.shared_memory.cursors import ROLES, SENDERS, BrokerCounters, HaConnectionCursors
from ipc.clock import monotonic_ms, wall_ms
from store.reading import extent
from store.reading.log_reader import open_log
from tools.web.state.asked import Asked, Watched
from tools.web.state.console import Console, Json

# In the order of a message's way. `allocated_offset` alone is ahead of the log's end.
STAGES = (
    "allocated_offset", "max_physical_offset", "flushed_offset", "reput_from_offset", "confirm_offset",
    "min_physical_offset",
)  # fmt: skip
OF_REPLICAS = ("next_transfer_offset", "slave_ack_offset", "held_offset", "flushed_offset")
COUNTERS = {one.label: one for one in BrokerCounters.plain()}
REPLICA_COUNTERS = {one.label.removeprefix("ha.0."): one for one in HaConnectionCursors.declared(0)}


def view(console: Console, _asked: Asked) -> Json:
    """Return the state of all stores, and the known members.

    Each store by itself: what is wrong with one does not hide another.
    """
    return {
        "now": wall_ms(),
        "stores": [_of_store(console, one) for one in console.stores],
        "members": console.members.known(),
    }


def _of_store(console: Console, watched: Watched) -> Json:
    head = {"number": watched.number, "label": watched.label}
    try:
        running = extent.running(watched.path)
        if running is None:
            return {**head, "live": False, **_at_rest(watched)}
        return {**head, "live": True, **_of_broker(running, watched)}
    except Exception as error:
        code = getattr(error, "code", type(error).__name__)
        return {**head, "live": False, "error": " ".join(f"{code}: {error}".split())}


def _at_rest(watched: Watched) -> Json:
    reader = open_log(watched.path)
    return {"minOffset": reader.min_offset, "maxOffset": reader.max_offset}


def _of_broker(running: extent.Running, watched: Watched) -> Json:
    with closing(BrokerCounters.attach(running.region_directory)) as counters:
        replication = ha_status.of_running(running, counters, str(watched.path))
        return {
            "broker": replication.broker_name,
            "brokerId": running.settings.get("brokerId"),
            "cluster": replication.cluster,
            "role": replication.role,
            "compat": replication.compat,
            "state": replication.state,
            "epoch": replication.epoch,
            "pid": running.pid,
            "address": running.settings.get("storeHost"),
            "problems": _short(replication.problems, watched),
            "inSyncSlaves": replication.in_sync_slaves,
            "replicasNeeded": replication.replicas_needed,
            "cursors": _cursors(counters, replication.role),
            "replicas": [_replica(counters, one) for one in replication.replicas],
            "gone": [asdict(one) for one in replication.gone],
            "client": _client(replication),
            "processes": _processes(counters, running.pid),
            **_puts(watched),
        }


def _short(problems: list[str], watched: Watched) -> list[str]:
    """The problems; a store is called what the user calls it."""
    return [line.replace(str(watched.path), watched.label) for line in problems]


def _cursors(counters: BrokerCounters, role: str) -> list[Json]:
    end = counters.max_physical_offset.read()
    labels = [label for label in STAGES if role != "SLAVE" or label != "confirm_offset"]  # a slave confirms nothing
    return [_cursor(label, counters.region.cursor(label).read(), end, role) for label in labels]


def _cursor(label: str, offset: int, end: int, role: str) -> Json:
    declared = COUNTERS[label]
    master, _bar, slave = declared.owner.partition("|")
    owner = slave if slave and role == "SLAVE" else master if slave in ("receiver", "") else declared.owner
    return {
        "name": label, "offset": offset, "behind": end - offset, "owner": owner, "followedBy": declared.followed_by,
        "meaning": declared.meaning,
    }  # fmt: skip


def _replica(counters: BrokerCounters, one: ConnectionStatus) -> Json:
    words, end = counters.ha[one.slot], counters.max_physical_offset.read()
    offsets = {name: getattr(words, name).read() for name in OF_REPLICAS}
    cursors = [
        {
            "name": name,
            "offset": offset,
            "behind": end - offset,
            "owner": f"sender.{one.slot}",
            "meaning": REPLICA_COUNTERS[name].meaning,
            "followedBy": REPLICA_COUNTERS[name].followed_by,
        }
        for name, offset in offsets.items()
        if offset >= 0
    ]
    return {**asdict(one), "cursors": cursors}


def _client(replication: HaStatus) -> Json | None:
    return None if replication.client is None else asdict(replication.client)


def _processes(counters: BrokerCounters, supervisor: int) -> list[Json]:
    now_ms, rows = monotonic_ms(), [{"role": "supervisor", "pid": supervisor, "restarts": 0, "silentMs": None}]
    for role in (*ROLES, *SENDERS):
        pid, given_up = counters.pids[role].read(), role in counters.given_up and counters.given_up[role].read()
        if pid <= 0 and not given_up:
            continue
        beat_ms = counters.heartbeats[role].read() if role in counters.heartbeats else 0
        rows.append(
            {
                "role": role,
                "pid": pid,
                "restarts": counters.restarts[role].read() if role in counters.restarts else 0,
                "silentMs": max(0, now_ms - beat_ms) if beat_ms else None,
                "givenUp": bool(given_up),
            }
        )
    return rows


def _puts(watched: Watched) -> Json:
    figures = stats(watched.path)
    return {
        "putMessages": figures.put_messages,
        "putRefused": figures.put_refused,
        "rates": {window: {"messages": rate.messages, "bytes": rate.bytes} for window, rate in figures.rates.items()},
        "p50Us": figures.latency.percentiles_us["50"],
        "p99Us": figures.latency.percentiles_us["99"],
    }
