"""The web console: pages about brokers and stores of this machine, served to one browser's user by `slipstream web`."""
