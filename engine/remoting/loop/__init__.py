"""The event loop of a role: its turns, its tasks, its threads."""
