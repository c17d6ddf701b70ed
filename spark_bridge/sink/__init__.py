"""Writes. Alone imports `engine.producer`."""
