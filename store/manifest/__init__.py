"""A store as RocketMQ's own classes have it after loading: the manifest that both sides can print and compare."""
