"""A path that a command is given: what opens it says who may not, with its owner, its rights and what to do."""

from __future__ import annotations

from typing import Any

import click


class GivenPath(click.Path):
    """As click's, without its check of rights, which would call a store of another user a wrong usage."""

    def __init__(self, **options: Any) -> None:
        super().__init__(readable=False, **options)
