"""What fronts and the clients role say to each other."""
