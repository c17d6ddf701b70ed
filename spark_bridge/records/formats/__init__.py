"""Bodies in Avro, JSON and Protobuf as values of Arrow's types, apart from the records that carry them."""
