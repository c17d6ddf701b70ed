"""`slipstream admin`: what RocketMQ's mqadmin does."""
