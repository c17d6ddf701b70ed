"""What writes into a store that nobody serves: repair, rebuilding from the log, cutting the log at an offset."""
