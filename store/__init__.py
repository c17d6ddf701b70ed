"""Bytes on disk: the commit log and its queues, in RocketMQ's formats. No sockets, no processes."""
