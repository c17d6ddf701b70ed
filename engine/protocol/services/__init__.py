"""What a master's services decide: when delayed messages are due, which half messages are asked about. No I/O."""
