"""Sends: from a request to a record in the front's ring, and its answer."""
