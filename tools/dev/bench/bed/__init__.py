"""What measurements stand on: loads, peers, figures, the machine."""
