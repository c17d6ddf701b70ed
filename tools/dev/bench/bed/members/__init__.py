"""Members of consumer groups beside each other: Slipstream's, Kafka's clients, Redis streams, Java's push consumer."""
