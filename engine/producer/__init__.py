"""The process that appends: `from slipstream import Producer`.

A public face: of all rooms this one alone hands on a name, and loads with it all that it stands on.
"""

from engine.producer.producer import Producer

__all__ = ["Producer"]
