"""What goes wrong between a read and a schema registry, each with a code: of a row, or of the whole read."""

from __future__ import annotations


class RegistryError(Exception):
    """All of this room's errors.

    Next: the text says which registry, what it was asked and what it said.
    """

    code = "SCHEMA_REGISTRY"


class RegistryUnreachable(RegistryError):
    """A registry that cannot be asked: it does not answer, not in time, or with an error of its own.

    Next: start it, or mend the way there; the read can be run again, nothing was guessed.
    """

    code = "SCHEMA_REGISTRY_UNREACHABLE"


class RegistryRefused(RegistryError):
    """A registry that does not let this reader in, or does not answer as one.

    Next: check `schemaRegistry`, and the file with the credentials.
    """

    code = "SCHEMA_REGISTRY_REFUSED"


class SchemaUnknown(RegistryError):
    """No schema has that number, or no subject that name.

    Next: check that the registry is the one that the bodies' senders used.
    """

    code = "SCHEMA_UNKNOWN"


class SchemaUnusable(RegistryError):
    """A schema that bodies cannot be decoded by: another kind, too large, endless, or contradicting the reader's.

    Next: the text says what is wrong with it; give a reader's schema that goes with it.
    """

    code = "SCHEMA_UNUSABLE"
