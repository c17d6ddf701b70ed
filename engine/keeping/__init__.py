"""The roles that follow the log: allocator, flusher, dispatcher, housekeeper."""
