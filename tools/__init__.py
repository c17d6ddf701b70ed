"""Programs for people: the command line, one module per group of commands. Nobody imports them."""
