"""How what is installed is made of this tree: the packages nested in one, `slipstream`."""
