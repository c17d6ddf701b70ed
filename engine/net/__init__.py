"""What all servers share about sockets: where they listen, and log lines that strangers may cause."""
