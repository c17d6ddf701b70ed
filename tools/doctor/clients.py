"""Whether clients are served: fronts, queues before the log, services."""

from __future__ import annotations

from contextlib import closing

from engine.monitoring.client_status import client_findings, fronts_of, services_of
from tools.common.how_many import how_many
from tools.doctor.node import Node, counters_of
from tools.doctor.rows import Row, ok, unknown, wrong

CHECK = "clients"


def rows(node: Node) -> list[Row]:
    """A row for each thing that is wrong, or one that says how it goes."""
    if node.running is None:
        waiting = node.runtime.get("sendThreadPoolQueueSize")
        if waiting is None:
            return [unknown(CHECK, "it does not report this", f"`slipstream doctor STORE` on {node.host}")]
        waits_ms = node.runtime.get("sendThreadPoolQueueHeadWaitTimeMills", "0")
        return [ok(CHECK, f"{waiting} sends in flight, the oldest waits for {waits_ms} ms")]
    with closing(counters_of(node.running)) as counters:
        findings = client_findings(counters, str(node.store))
        fronts, services = fronts_of(counters), services_of(counters)
    if findings:
        return [wrong(CHECK, one.reason, one.what, one.next_step) for one in findings]
    if not fronts:
        return [unknown(CHECK, "no front process runs", f"`slipstream status {node.target}`")]
    count, held = sum(one.connections for one in fronts), sum(one.pulls_held for one in fronts)
    in_flight, refused = sum(one.sends_in_flight for one in fronts), sum(one.sends_refused for one in fronts)
    served = f"{how_many(len(fronts), 'front')}, {how_many(count, 'connection')}, {how_many(held, 'pull')} held"
    served += f", {how_many(in_flight, 'send')} in flight"
    also = f"; {', '.join(services)} run" if services else ""
    return [ok(CHECK, f"{served}, {refused} refused since the start{also}")]
