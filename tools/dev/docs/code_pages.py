"""The pages that are made from the code each time the site is built, by their place on it."""

from __future__ import annotations

from collections.abc import Callable

from tools.dev.docs import benchmarks, command_help, error_codes, property_keys, reason_codes, request_codes

PAGES: dict[str, Callable[[], str]] = {
    "benchmarks.md": benchmarks.page,
    "how-to/error-codes.md": error_codes.page,
    "how-to/reason-codes.md": reason_codes.page,
    "reference/commands.md": command_help.page,
    "reference/keys.md": property_keys.page,
    "reference/requests.md": request_codes.page,
}
