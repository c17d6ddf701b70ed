"""What the console works with: its stores, its name servers, what it remembers, and what it refuses."""
