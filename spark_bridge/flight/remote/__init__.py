"""Reads, streams and writes of Spark whose stores are on other hosts, through the Flight servers there."""
