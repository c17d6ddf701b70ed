"""Compiled code and what it stands on: how kernels are made and kept, atomics, memory, CRCs, system calls, placement.

Ground of all shared memory: nothing here knows of regions, rings or counters.
"""
