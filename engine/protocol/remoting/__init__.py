"""Remoting on the wire: frames, headers, codes, and the way in which every server answers."""
