"""From a request to a draft of a record, as each line of RocketMQ stores it. Pure: rules, no file, no process."""
