"""Stores on other hosts: addresses of their Flight servers as a read's `path`, and what calls to them need.

One path is one broker's log; separated by commas it names several replicas of it. `replicaPath` is where hosts
that have a replica of their own keep it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ipc.host_port import host_port
from spark_bridge.options.values import InvalidOption, local_path

FLIGHT_OPTION_NAMES = ("replicaPath", "flightToken", "flightTokenFile", "flightRoots")
SCHEMES = ("grpc://", "grpc+tcp://", "grpc+tls://")
PATH_OPTIONS = ("path", "paths")
FILE_BYTES_MAX = 1 << 20
REPLICAS_MAX = 64


@dataclass(frozen=True)
class Flights:
    """`stores` are the addresses of each store's replicas; `asked` are the options sent to their servers."""

    stores: tuple[tuple[str, ...], ...]
    token: str | None = field(default=None, repr=False)
    roots: bytes | None = field(default=None, repr=False)
    replica_path: str | None = None
    asked: Mapping[str, str] = field(default_factory=dict)


def is_flight(path: str) -> bool:
    """Whether a path is an address of a Flight server."""
    return path.strip().lower().startswith(SCHEMES)


def parse_flights(paths: Sequence[str], given: Mapping[str, str]) -> Flights | None:
    """The servers that paths name; None where they name directories. `given` has the options by lower-case names.

    Raises InvalidOption.
    """
    if not any(map(is_flight, paths)):
        misplaced = [name for name in FLIGHT_OPTION_NAMES if name.lower() in given]
        if misplaced:
            raise InvalidOption(f"{misplaced[0]} belongs to a path as grpc://HOST:PORT, which is read through Flight")
        return None
    own = {name.lower() for name in (*FLIGHT_OPTION_NAMES, *PATH_OPTIONS)}
    replica = given.get("replicapath")
    return Flights(
        tuple(map(_replicas, paths)),
        _token(given),
        _read("flightRoots", given["flightroots"]) if "flightroots" in given else None,
        None if replica is None else local_path("replicaPath", replica),
        {name: text for name, text in given.items() if name not in own},
    )


def _replicas(path: str) -> tuple[str, ...]:
    places = tuple(dict.fromkeys(place.strip() for place in path.split(",") if place.strip()))
    wrong = [place for place in places if not is_flight(place) or host_port(place.split("://", 1)[1]) is None]
    if wrong or len(places) > REPLICAS_MAX:
        what = f"path={path!r}: {wrong[0]!r} is not an address" if wrong else f"path: {len(places)} replicas"
        raise InvalidOption(f"{what}; up to {REPLICAS_MAX} as grpc://HOST:PORT separated by commas")
    return places


def _token(given: Mapping[str, str]) -> str | None:
    if "flighttoken" in given and "flighttokenfile" in given:
        raise InvalidOption("flightToken and flightTokenFile say the same thing twice: give one of them")
    if "flighttokenfile" in given:
        return _read("flightTokenFile", given["flighttokenfile"]).decode("utf-8", "replace").strip()
    return given.get("flighttoken")


def _read(option: str, name: str) -> bytes:
    """A small file of the driver's host: what it holds travels with the tasks."""
    try:
        with Path(name).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidOption(f"{option}={name!r}: {error.strerror or error}; a file that the driver can read") from error
    if len(data) > FILE_BYTES_MAX:
        raise InvalidOption(f"{option}={name!r}: larger than {FILE_BYTES_MAX} bytes; is it the right file?")
    return data
