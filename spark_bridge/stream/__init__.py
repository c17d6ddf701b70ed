"""The driver's part of a stream."""
