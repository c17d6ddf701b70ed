"""Messages that clients send, give back or decide on: headers, checks in RocketMQ's order, answers; no I/O."""
