"""Consume queues of every kind: built, read, searched by time, made durable."""
