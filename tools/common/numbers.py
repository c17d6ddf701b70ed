"""Options of commands that take a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

GROUPED_FROM = 100_000  # a default as large has commas: no port, and no number that somebody would copy


def number(
    names: str, within: click.IntRange | click.FloatRange, default: float, unit: str, says: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option with these names, separated by blanks; its help ends with the default."""
    shown = (
        f"{default:g}" if isinstance(default, float) else f"{default:,}" if default >= GROUPED_FROM else f"{default}"
    )
    given = f"{says} Default: {shown}."
    return click.option(*names.split(), type=within, default=default, metavar=unit, help=given)
