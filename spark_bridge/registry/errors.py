"""What goes wrong between a read and a schema registry, each with a code: of a row, or of the whole read."""

from __future__ import annotations


class RegistryError(Exception):
    """Base class of schema-registry errors.

    Next: the error names the registry, the request and the answer.
    """

    code = "SCHEMA_REGISTRY"


class RegistryUnreachable(RegistryError):
    """Raised when a registry gives no answer, a late answer, or an error.

    Next: start it or repair the connection, then run the read again; no row was guessed.
    """

    code = "SCHEMA_REGISTRY_UNREACHABLE"


class RegistryRefused(RegistryError):
    """Raised when a registry refuses this reader, or the server is not a registry.

    Next: check `schemaRegistry`, and the file with the credentials.
    """

    code = "SCHEMA_REGISTRY_REFUSED"


class SchemaUnknown(RegistryError):
    """Raised for an unknown schema number or subject.

    Next: check that the registry is the one that the bodies' senders used.
    """

    code = "SCHEMA_UNKNOWN"


class SchemaUnusable(RegistryError):
    """Raised for a schema that cannot decode bodies: wrong kind, too large, endless, or in conflict with the reader's.

    Next: the error says what is wrong; give a reader's schema that matches.
    """

    code = "SCHEMA_UNUSABLE"
