"""Roles of a master that put messages again: delayed ones when they are due, half messages that nobody ended."""
