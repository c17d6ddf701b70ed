"""What a column of a read is called in a side file: Kafka's columns are RocketMQ's under other names."""

from __future__ import annotations

POSITION, SIZE = "physicalOffset", "size"
OF_KAFKA = {"key": "keys", "partition": "queueId", "offset": "queueOffset", "timestamp": "bornTimestamp"}
CONSTANT = ("brokerName", "timestampType", "_replica", "_reading", "_error")  # no record says them


def side_name(name: str) -> str:
    """The column of a side file that says what a read's column of that name does, if any does."""
    return OF_KAFKA.get(name, name)
