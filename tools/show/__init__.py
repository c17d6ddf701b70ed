"""Views of a running broker: status, counters, stats, ha."""
