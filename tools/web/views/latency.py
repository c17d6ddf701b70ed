"""How long acknowledgements take, as a histogram, and how many messages are put a second."""

from __future__ import annotations

from engine.monitoring.store_stats import LatencyStats, latency_stats, stats
from engine.protocol.store.put_rates import Sample
from engine.shared_memory.latencies import Latencies, latencies_of, lowest_of, sum_of_rings
from engine.shared_memory.put_samples import read_samples
from ipc.clock import monotonic_ms, wall_ms
from store.reading import extent
from tools.web.state.asked import Asked
from tools.web.state.console import Console, Json

BINS_AN_OCTAVE = 2
RATES_MAX = 600


def view(_console: Console, asked: Asked) -> Json:
    """Since the broker's start, and of the last whole minute. Raises NoBroker."""
    store = asked.store
    running = extent.require_running(store.path)
    sampled = read_samples(running.region_directory)
    minute = _with_longest(sampled.minute)
    whole = latencies_of(sum_of_rings(running.region_directory))
    figures = stats(store.path)
    behind_ms = wall_ms() - monotonic_ms()
    rates = [
        (after.time_ms + behind_ms, *_rate(before, after))
        for before, after in zip(sampled.samples[:-1], sampled.samples[1:], strict=True)
        if after.time_ms > before.time_ms
    ]
    return {
        "since": _shown(latency_stats(whole), whole),
        "minute": _shown(latency_stats(minute), minute),
        "bootMs": sampled.boot_ms,
        "role": figures.role,
        "putMessages": figures.put_messages,
        "putRefused": figures.put_refused,
        "rates": rates[-RATES_MAX:],
        "windows": {name: {"messages": one.messages, "bytes": one.bytes} for name, one in figures.rates.items()},
    }


def _with_longest(minute: Latencies) -> Latencies:
    """The longest put of a minute is known by its bucket alone."""
    used = minute.counts.nonzero()[0]
    return minute._replace(max_us=lowest_of(int(used[-1]) + 1) - 1) if len(used) else minute


def _rate(before: Sample, after: Sample) -> tuple[float, float]:
    elapsed = (after.time_ms - before.time_ms) / 1000
    messages = after.messages - before.messages
    size = after.bytes - before.bytes
    return round(messages / elapsed, 1), round(size / elapsed)


def _shown(figures: LatencyStats, latencies: Latencies) -> Json:
    return {
        "puts": figures.puts, "meanUs": figures.mean_us, "maxUs": figures.max_us, "percentiles": figures.percentiles_us,
        "bins": bins_of(latencies),
    }  # fmt: skip


def bins_of(latencies: Latencies) -> list[tuple[int, int, int]]:
    """(from, to, puts) in microseconds: two bins an octave, none left out between the first and the last."""
    bins: dict[int, int] = {}
    for index in latencies.counts.nonzero()[0].tolist():
        number = _bin_of(lowest_of(index))
        bins[number] = bins.get(number, 0) + int(latencies.counts[index])
    if not bins:
        return []
    return [(_low_of(one), _low_of(one + 1), bins.get(one, 0)) for one in range(min(bins), max(bins) + 1)]


def _bin_of(micros: int) -> int:
    octave = max(micros, 1).bit_length() - 1
    return octave * BINS_AN_OCTAVE + int(micros >= _low_of(octave * BINS_AN_OCTAVE + 1))


def _low_of(number: int) -> int:
    octave, upper = divmod(number, BINS_AN_OCTAVE)
    return (1 << octave) + upper * (1 << octave >> 1)
