"""Lets Spark find the format "rocketmq": it looks for `DefaultSource` in top-level modules named pyspark_*."""

from spark_bridge.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
