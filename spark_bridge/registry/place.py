"""Which registry, and what lets a reader in: read on the driver, sent with the tasks, shown nowhere."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class RegistryPlace:
    """`at` is a URL without a slash at its end, or the path of a file or folder; `authorization` a header's value."""

    at: str
    authorization: str | None = field(default=None, repr=False)
    roots: bytes | None = field(default=None, repr=False)

    @property
    def is_http(self) -> bool:
        """Whether it is asked over the network."""
        return self.at.startswith(("http://", "https://"))
