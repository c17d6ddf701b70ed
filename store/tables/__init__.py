"""A broker's tables in `config/*.json`, read and written as RocketMQ does."""
