"""Where a log ends, and its queues and index brought to that end; the step that a running dispatcher shares with it."""
