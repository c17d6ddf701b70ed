"""Commands that run something: broker, namesrv, produce."""
