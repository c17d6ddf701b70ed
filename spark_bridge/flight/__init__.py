"""A store's messages as Arrow Flight, for who has no replica on his host: requests, tickets, a server, a client."""
