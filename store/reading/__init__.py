"""Reading a store with a broker or without one: how far, from where, record by record, by key."""
