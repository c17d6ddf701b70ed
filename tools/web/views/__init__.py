"""What the console's pages show: for each a function of what is asked, its answer plain values for JSON."""
