"""What a producer puts into a ring and the writer takes out: the only thing that these two share."""
