"""Pulls decided: headers, checks, which messages a pull gets, what waits for messages and what wakes it."""
