"""What driver and executors both speak of: selections, extents of logs, splits, leases."""
