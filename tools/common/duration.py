"""A span of time, as it is typed: 90m, 24h, 7d."""

from __future__ import annotations

import re

import click

from tools.common.moments import UNITS_MS

DURATION = re.compile(r"([0-9]{1,9})(s|m|h|d|w)")


class Duration(click.ParamType[int]):
    """A time as 90m, 24h or 7d; the command gets milliseconds."""

    name = "duration"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = DURATION.fullmatch(value.strip())
        if match is None or not int(match[1]):
            self.fail(f"{value!r} is not a duration; give a number with s, m, h, d or w, such as 90m or 7d", param, ctx)
        return int(match[1]) * UNITS_MS[match[2]]
