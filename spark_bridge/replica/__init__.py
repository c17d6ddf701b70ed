"""Which store on this host is meant, and whether it holds already what was planned elsewhere."""
