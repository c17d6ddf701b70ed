"""One module a measurement."""
