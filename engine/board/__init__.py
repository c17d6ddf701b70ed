"""Shared memory as the engine means it: counters, tables and samples, who writes each, and where they lie."""
