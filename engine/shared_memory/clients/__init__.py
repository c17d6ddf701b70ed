"""Clients in shared memory: how far each group is in each queue, who holds which queue, and their names."""
