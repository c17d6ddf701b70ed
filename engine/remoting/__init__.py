"""Sockets of remoting: the role that serves them, its clients, and the name server."""
