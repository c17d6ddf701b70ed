"""What the clients role asks of others: name servers, masters, replicas."""
