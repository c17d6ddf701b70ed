"""Both ends of replication as processes, and GroupTransfer, which says how far replicas have acknowledged."""
