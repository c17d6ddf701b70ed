"""Clients' connections: who they are, what they wait for, what is handed on to the clients role."""
