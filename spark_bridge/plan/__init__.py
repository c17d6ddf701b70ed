"""The driver's part of a batch read."""
