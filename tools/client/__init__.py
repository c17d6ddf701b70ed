"""A producer and a consumer over remoting, for commands: one event loop, a connection to each broker."""
