"""What the console works with: its stores, whom it asks, what it remembers, and what it refuses."""
