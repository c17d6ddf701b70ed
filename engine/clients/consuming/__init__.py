"""Consuming from brokers in Python: what is decided without I/O, a member of a group, and Consumer over it."""
