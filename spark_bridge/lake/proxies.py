"""Catalogs and storages on this host are asked past the proxies that the environment names.

PyIceberg's requests, deltalake's and Arrow's clients of object stores all follow `http_proxy` and its like, for
127.0.0.1 as well, and would hand a catalog's token to the proxy. All of them follow `no_proxy`.
"""

from __future__ import annotations

import os

PROXIES = ("http_proxy", "https_proxy", "all_proxy")
EXCEPTIONS = ("no_proxy", "NO_PROXY")
OF_THIS_HOST = ("localhost", "127.0.0.1", "127.0.0.0/8", "::1", "[::1]")
ALL = "*"


def leave_out_this_host() -> None:
    """Add this host's names to the exceptions of this process, where it has a proxy."""
    if not any(os.environ.get(name) or os.environ.get(name.upper()) for name in PROXIES):
        return
    named = [name.strip() for key in EXCEPTIONS for name in os.environ.get(key, "").split(",") if name.strip()]
    if ALL in named:
        return
    for key in EXCEPTIONS:
        os.environ[key] = ",".join(dict.fromkeys([*named, *OF_THIS_HOST]))
