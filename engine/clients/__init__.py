"""A producer and a consumer of brokers, over remoting, for Python programs and commands."""
