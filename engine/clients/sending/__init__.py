"""Sending to brokers from Python: what is decided without I/O, the tasks of a loop, and RemoteProducer over them."""
