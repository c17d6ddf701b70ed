"""Shared memory as the engine means it: counters, tables and samples, and who writes each."""
