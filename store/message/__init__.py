"""What a record says: bytes, properties, topics, hosts, inner batches. Pure: no file, no process.

The only room that knows the layout of a record, compiled and not.
"""
