"""The process that gives records their place in the log."""
