"""Views of a running broker, for people and monitors: read-only."""
