"""A live view of a running broker in a terminal, and one snapshot of it as text."""
