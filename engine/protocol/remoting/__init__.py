"""Remoting on the wire: frames, headers, codes, and the way in which any server of ours answers."""
