"""What a key of the configuration is: its name, its field, its kind, and which values are allowed.

spec: configuration. The settings themselves stand in keys.py and client_keys.py.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast

from store.compat import LINES

Kind = Literal[
    "int",
    "bool",
    "text",
    "path",
    "address",
    "host_port",
    "role",
    "flush_type",
    "compat",
    "affinity",
    "hours",
    "addresses",
    "exporter",
    "delays",
    "allow_list",
    "tls_mode",
    "ha_tls_mode",
    "log_level",
    "log_form",
]
INT_MAX = 2**31 - 1


class Key(NamedTuple):
    """One key; `low` and `high` bound an int, both inclusive."""

    name: str
    field: str
    kind: Kind
    default: str | int | bool | None
    low: int = 0
    high: int = INT_MAX
    unit: str = ""
    says: str = ""  # what it does here, in a few words; of every key that is declared

    @property
    def allowed(self) -> str:
        """The allowed values, for an error message."""
        if self.kind == "int":
            return f"a whole number from {self.low} to {self.high}" + (f" ({self.unit})" if self.unit else "")
        return ALLOWED[self.kind]


ALLOWED: dict[str, str] = {
    "bool": "true or false",
    "text": "any printable text that is not empty",
    "path": "one path",
    "address": "an IPv4 or IPv6 address, or a host name that resolves to one",
    "host_port": "host:port, with a port from 1 to 65535",
    "role": "ASYNC_MASTER, SYNC_MASTER or SLAVE",
    "flush_type": "ASYNC_FLUSH or SYNC_FLUSH",
    "compat": " or ".join(LINES),
    "exporter": "PROM or DISABLE (OTLP_GRPC and LOG are taken as PROM), or RocketMQ's numbers for them, 0 to 3",
    "addresses": "host:port, several separated by ;",
    "allow_list": "addresses and networks, separated by ; or commas, as in 10.1.0.0/16;192.0.2.7;2001:db8::/32",
    "delays": "levels of delay, each a number with s, m, h or d, separated by spaces, as in 1s 5s 1m 2h",
    "hours": "hours of the day from 0 to 23, separated by ;",
    "tls_mode": "disabled, permissive or enforcing",
    "ha_tls_mode": "disabled or enforcing",
    "log_level": "debug, info, warning or error",
    "log_form": "text or json",
    "affinity": "empty (the kernel decides), sync (the synchronous path on one CPU), or CPU numbers as in 0,2-3",
}


KINDS: dict[str, Kind] = {  # a field's type: the kind of its key, where that says no other
    "int": "int",
    "bool": "bool",
    "str": "text",
    "Path": "path",
    "AllowList": "allow_list",
    "BrokerRole": "role",
    "FlushDiskType": "flush_type",
    "frozenset[int]": "hours",
    "tuple[str, ...]": "addresses",
    "tuple[str, int]": "host_port",
}


def key(
    name: str,
    default: str | int | bool | None,
    low: int = 0,
    high: int = INT_MAX,
    *,
    unit: str = "",
    kind: Kind | None = None,
    says: str,
) -> Any:
    """Declare a field of a class of settings; `keys_of` adds the field's name, and the kind from its type."""
    return Key(name, "", cast(Kind, kind), default, low, high, unit, says)


def keys_of(settings: type) -> tuple[Key, ...]:
    """Return the keys of the fields that a class declares."""
    declared = ((field, of) for field, of in vars(settings).items() if isinstance(of, Key))
    types = settings.__annotations__
    return tuple(
        of._replace(field=field, kind=of.kind or KINDS[types[field].removesuffix(" | None")]) for field, of in declared
    )
