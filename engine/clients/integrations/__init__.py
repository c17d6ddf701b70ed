"""Slipstream's clients under the interfaces of other libraries: OpenTelemetry's spans, Kombu's transports."""
