"""A process that serves clients' connections: sends into its ring, pulls out of the log, hands on everything else."""
