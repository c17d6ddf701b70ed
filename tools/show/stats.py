"""`slipstream stats`: what was put into a broker, how fast and how long it took, for people and as JSON."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from engine.monitoring import store_stats
from engine.monitoring.store_stats import LatencyStats, StoreStats
from engine.protocol.store.put_rates import runtime_text
from tools.common import watch as screen
from tools.show.table import table_of

MIB = 1 << 20
TOPICS_SHOWN = 40
BAR_CELLS = 40


def duration(micros: float) -> str:
    """A latency with three digits that count."""
    if micros < 1000:
        return f"{micros:.0f} µs"
    return f"{micros / 1000:.3g} ms" if micros < 1_000_000 else f"{micros / 1_000_000:.3g} s"


def _rates(stats: StoreStats) -> Table:
    table = table_of("rate over", "messages/s", "MiB/s", "seconds there are")
    for window, rate in stats.rates.items():
        table.add_row(window, f"{rate.messages:,.0f}", f"{rate.bytes / MIB:,.2f}", f"{rate.seconds:.1f}")
    return table


def _latencies(latency: LatencyStats) -> RenderableType:
    if not latency.puts:
        return Text("no put waited for an answer")
    line = "  ".join(f"p{name} {duration(micros)}" for name, micros in latency.percentiles_us.items())
    table = table_of("took", "puts", "")
    most = max(latency.distribution.values())
    for name, puts in latency.distribution.items():
        if puts:
            table.add_row(name, f"{puts:,}", Text("█" * max(1, puts * BAR_CELLS // most), justify="left"))
    mean, longest = duration(latency.mean_us), duration(latency.max_us)
    return Group(Text(f"{latency.puts:,} answered puts: mean {mean}  {line}  max {longest}"), table)


def _topics(stats: StoreStats) -> RenderableType:
    table = table_of("topic", "messages", "MiB")
    most = sorted(stats.topics, key=lambda topic: topic.messages, reverse=True)
    for topic in most[:TOPICS_SHOWN]:
        table.add_row(topic.topic, f"{topic.messages:,}", f"{topic.bytes / MIB:,.2f}")
    if len(most) > TOPICS_SHOWN:
        rest = most[TOPICS_SHOWN:]
        table.add_row(
            f"{len(rest)} more",
            f"{sum(topic.messages for topic in rest):,}",
            f"{sum(topic.bytes for topic in rest) / MIB:,.2f}",
        )
    return table


def render(stats: StoreStats) -> RenderableType:
    """Return the whole view for the terminal."""
    since = runtime_text(stats.now_ms - stats.boot_ms)
    heading = (
        f"{stats.broker_name}  {stats.role}  {stats.store}\nsince its start {since}: "
        f"{stats.put_messages:,} messages, {stats.put_bytes / MIB:,.2f} MiB, {stats.put_refused:,} refused; "
        f"dispatch is {stats.dispatch_behind_bytes:,} bytes behind\n"
    )
    return Group(Text(heading), _rates(stats), Text(""), _latencies(stats.latency), Text(""), _topics(stats))


def show(store: str, as_json: bool, watch: bool) -> int:
    """What was put into the broker that runs on STORE, once or until Ctrl-C. Raises NoBroker."""
    if as_json:
        screen.show_json(lambda: store_stats.stats(store).to_json(), watch, "stats")
    elif watch:
        screen.watch(lambda: render(store_stats.stats(store)))
    else:
        screen.plain_console().print(render(store_stats.stats(store)))
    return 0
