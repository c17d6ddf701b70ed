"""Index files: which messages carry a key. Built, read, made durable; queues are not known here."""
