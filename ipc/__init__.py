"""Shared memory and waiting: mapped regions, labelled counters, rings, futexes. Knows no messages."""
