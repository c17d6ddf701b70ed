"""Pulls: from a request to ranges of the log; those that wait for messages."""
