"""A running broker as `slipstream top` shows it: looked at again and again, from shared memory alone."""
