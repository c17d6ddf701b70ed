"""What stands above the views, and all of it as one page of text."""

from __future__ import annotations

from rich.text import Text

from engine.monitoring.live.broker import Look
from tools.show.ha_tables import bytes_text, seconds_text
from tools.show.stats import duration
from tools.top.drawing import Glyphs, curve, fitted, line_of
from tools.top.views import BAD, VIEWS, View, chosen, heading, row_line

FINDINGS_MAX = 3
ROWS_MAX = {"replicas": 8, "topics": 10, "producers": 8, "consumers": 10, "roles": 40}
CURVE_CELLS = 30
STAGE_CELLS_MAX = 30


def head(look: Look, width: int) -> list[Text]:
    """Return the lines that say which broker it is, and what is wrong."""
    ha = look.replication
    who = f"{ha.broker_name}  {ha.role}  {ha.state}  up {seconds_text(look.up_seconds)}  {look.store}"
    lines = [line_of(who, width, "bold")]
    for one in look.findings[:FINDINGS_MAX]:
        text = f"{one.reason}  {one.what}; next: {one.next_step}".replace(look.store, "STORE")
        lines.append(line_of(text, width, BAD))
    if not look.findings:
        lines.append(line_of("OK  nothing is wrong", width, "green"))
    elif (more := len(look.findings) - FINDINGS_MAX) > 0:
        lines.append(line_of(f"and {more} more: slipstream status STORE", width, BAD))
    return lines


def pipeline(look: Look, width: int, glyphs: Glyphs) -> list[Text]:
    """The cursors as distances from the log's end, and how fast it grows."""
    first, *others = look.stages
    stages = [] if look.replication.client is not None else [("rings", f"{sum(ring.waiting for ring in look.rings):,}")]
    cells, arrow = min(STAGE_CELLS_MAX, width // (len(stages) + len(look.stages))), f" {glyphs.arrow} "
    exact = f"{first.offset:,}"
    stages.append((first.name, exact if len(exact) <= cells - len(arrow) else bytes_text(first.offset)))
    stages += [(one.name, f"-{bytes_text(one.behind)}" if one.behind else "0 B") for one in others]
    names = arrow.join(fitted(name, cells - len(arrow)) for name, _value in stages)
    values = (" " * len(arrow)).join(fitted(value, cells - len(arrow)) for _name, value in stages)
    rate, times = look.rate, look.times
    took = f"  p50 {duration(times.p50_us)}  p99 {duration(times.p99_us)}" if times.puts else ""
    puts = f"{rate.messages:,.0f} messages/s  {bytes_text(rate.bytes)}/s{took}  log {bytes_text(look.log_bytes)}"
    line = line_of(f"{puts}  ", width)
    line.append(curve(look.puts_curve, min(CURVE_CELLS, max(0, width - line.cell_len)), glyphs), style="cyan")
    return [line_of(names, width, "bold"), line_of(values, width), line]


def _table(view: View, look: Look, width: int, glyphs: Glyphs) -> list[Text]:
    rows = chosen(view, view.rows(look), view.sorted_by, False)
    lines = [Text(), line_of(view.title(look), width, "bold underline")]
    if not rows:
        return [*lines, line_of(view.empty, width)]
    lines.append(heading(view, width, view.sorted_by, False, glyphs))
    most = ROWS_MAX[view.name]
    lines += [row_line(view, row, width, glyphs) for row in rows[:most]]
    if len(rows) > most:
        lines.append(line_of(f"and {len(rows) - most:,} more", width))
    return lines


def page(look: Look, width: int, glyphs: Glyphs) -> list[Text]:
    """Everything, the first rows of each view."""
    lines = [*head(look, width), Text(), *pipeline(look, width, glyphs)]
    for view in VIEWS:
        lines += _table(view, look, width, glyphs)
    return lines
