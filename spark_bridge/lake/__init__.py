"""A store's messages in tables of a lake: every row and the offsets behind it in one commit of the table."""
