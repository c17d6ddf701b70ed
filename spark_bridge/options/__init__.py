"""What a user says to the source, from text to values."""
