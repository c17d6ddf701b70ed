"""Decisions of replication: frames, both ends of a connection, acknowledgements, flow, reasons.

Bytes and time in, bytes and actions out.
"""
