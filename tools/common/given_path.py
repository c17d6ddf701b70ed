"""A path that a command is given: what opens it says who may not, with its owner, its rights and what to do."""

from __future__ import annotations

from typing import Any

import click


class GivenPath(click.Path):
    """A path like click's, without its check of rights, which would call another user's store a usage error."""

    def __init__(self, **options: Any) -> None:
        super().__init__(readable=False, **options)
