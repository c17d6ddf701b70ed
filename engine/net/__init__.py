"""What every server of ours shares about sockets: where it listens, and log lines that strangers may cause."""
