"""From broker.properties to one frozen dataclass, and what is derived from it."""
