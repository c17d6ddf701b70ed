"""Ports and connections of remoting: listening, opening, asking."""
