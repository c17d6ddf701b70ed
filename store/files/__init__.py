"""Files of a store: names, modes, locks, owners; opened, mapped, made durable; segments; checkpoint, pointer."""
