"""The generated parts of docs/compatibility.md: request codes and mqadmin's commands, RocketMQ's beside Slipstream's.

What RocketMQ has is data, read from its jars: rocketmq_requests.txt and rocketmq_mqadmin.txt beside this file. What
Slipstream answers is read from the tables of handlers, as for the page of request codes.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from engine.protocol.remoting.codes import RequestCode
from store.compat import NEWEST, OLDEST
from tools.dev.docs import request_codes
from tools.dev.docs.places import ROOT
from tools.dev.docs.tables import code, table

RELEASES = {"4.9.7": OLDEST, "5.3.3": NEWEST, "5.5.0": NEWEST}  # RocketMQ's release: the value of `compat` beside it
REQUESTS, MQADMIN = (Path(__file__).with_name(f"rocketmq_{name}.txt") for name in ("requests", "mqadmin"))
TRIED_BY = ("tests/interop/test_mqadmin.py", "tests/interop/test_administered_clients.py")
SERVERS = {"broker", "names"}  # a controller, a container and a client are no server of ours
REFUSED = {RequestCode.RECALL_MESSAGE: "the timer wheel (this request is refused with code 16)"}
ASKS_NOBODY = "local files that Slipstream does not write; these commands send no request"
WHY = (  # names of requests that are not answered: why; the first that fits counts
    (r"LITE|PARENT_TOPIC", "lite topics of RocketMQ 5.5"),
    (r"POP|^ACK_|BATCH_ACK|PEEK|INVISIBLE|NOTIFICATION|POLLING|ASSIGNMENT|SET_MESSAGE_REQUEST_MODE", "POP consumers"),
    (r"^AUTH_|ACL|GLOBAL_WHITE", "users and ACLs"),
    (r"CONTROLLER|EPOCH_CACHE|ROLE_CHANGED|CLEAN_BROKER_DATA", "the controller"),
    (r"^(ADD|REMOVE)_BROKER", "the broker container"),
    (r"MIN_BROKER_ID|EXCHANGE_BROKER_HA|MASTER_FLUSH", "slaves that act as masters (`enableSlaveActingMaster`)"),
    (r"ROCKSDB", "RocksDB"),
    (r"COLD_DATA|COMMITLOG_READ_MODE", "flow control of cold reads"),
    (r"STATIC_TOPIC", "static topics"),
    (r"TIMER_ENGINE", "the timer wheel"),
    (r"FILTER", "filter servers"),
)


class Request(NamedTuple):
    """A request of RocketMQ's: which releases have it, and what serves it there."""

    number: int
    name: str
    releases: tuple[str, ...]
    served_by: tuple[str, ...]


class Command(NamedTuple):
    """A command of mqadmin: releases in which it sends these requests."""

    name: str
    releases: tuple[str, ...]
    sends: tuple[int, ...]


def _rows(path: Path) -> Iterator[list[str]]:
    return (line.split() for line in path.read_text().splitlines() if not line.startswith("#"))


def _listed(text: str) -> tuple[str, ...]:
    return () if text == "-" else tuple(text.split(","))


@cache
def requests() -> list[Request]:
    """All requests of the three releases, by number."""
    return [Request(int(of[0]), of[1], _listed(of[2]), _listed(of[3])) for of in _rows(REQUESTS)]


@cache
def commands() -> list[Command]:
    """All commands; one that sends other requests in another release is there twice."""
    return [Command(of[0], _listed(of[1]), tuple(map(int, _listed(of[2])))) for of in _rows(MQADMIN)]


@cache
def _answered(server: str, compat: str) -> frozenset[int]:
    """The numbers that a server with this `compat` answers otherwise than "not supported"."""
    served = request_codes.at_brokers() if server == "broker" else request_codes.at_name_servers()
    return frozenset(int(one) for one, lines in served.items() if compat in lines)


def state(request: Request, release: str) -> str:
    """How a request of a release is answered, by all servers that serve it there: a word that `_summary` counts."""
    servers, compat = SERVERS.intersection(request.served_by), RELEASES[release]
    if not servers:
        return "for others"
    if request.number in REFUSED:
        return "refused by name"
    return "answered" if all(request.number in _answered(one, compat) for one in servers) else "not supported"


def why_not(request: Request) -> str:
    """What of RocketMQ is missing, so that the request is not answered. Raises LookupError where nobody wrote it."""
    for pattern, why in WHY:
        if re.search(pattern, request.name):
            return why
    raise LookupError(f"{request.number} {request.name} is not answered: say why in WHY of {__name__}")


def _summary() -> str:
    rows = []
    for release, compat in RELEASES.items():
        those = [request for request in requests() if release in request.releases]
        counts = Counter(state(request, release) for request in those)
        rows.append(
            (
                release,
                f"`compat={compat}`",
                str(len(those)),
                str(counts["answered"]),
                str(counts["refused by name"]),
                str(counts["not supported"]),
                str(counts["for others"]),
            )
        )
    head = ("RocketMQ", "Slipstream with", "request codes", "answered", "refused with a reason",
            "not supported (code 3)", "served by no RocketMQ broker or name server")  # fmt: skip
    return table(head, rows)


def _missing() -> str:
    groups: dict[str, list[Request]] = {}
    for request in requests():
        states = {state(request, release) for release in request.releases}
        if "not supported" in states or ("for others" in states and _for_other_servers(request)):
            groups.setdefault(why_not(request), []).append(request)
    order = dict.fromkeys(why for _pattern, why in WHY)
    rows = [(why, ", ".join(f"{of.number} {code(of.name)}" for of in groups[why])) for why in order if why in groups]
    rows += [(words, f"{int(one)} {code(one.name)}") for one, words in REFUSED.items()]
    return table(("missing feature", "requests that need it"), rows)


def _for_other_servers(request: Request) -> bool:
    return bool({"controller", "container"}.intersection(request.served_by))


def _mqadmin() -> str:
    by_name: dict[str, list[Command]] = {}
    for command in commands():
        by_name.setdefault(command.name, []).append(command)
    texts = [(ROOT / path).read_text() for path in TRIED_BY]
    whole: dict[str, tuple[list[str], list[str]]] = {}  # by releases: those that a test runs, the others
    lacking: dict[str, list[str]] = {}  # by what is missing
    for name, those in by_name.items():
        lacked = ", ".join(dict.fromkeys(map(why_not, _lacks(those))))
        if lacked or not those[0].sends:
            lacking.setdefault(lacked or ASKS_NOBODY, []).append(code(name))
        else:
            is_tried = any(re.search(rf'["(]{name}[ "]', text) for text in texts)
            whole.setdefault(", ".join(_releases(those)), ([], []))[not is_tried].append(code(name))
    yes = [(releases, ", ".join(tried), ", ".join(others)) for releases, (tried, others) in whole.items()]
    no = [(why, ", ".join(names)) for why, names in sorted(lacking.items())]
    return (
        "Slipstream answers every request of these commands:\n\n"
        f"{table(('versions of mqadmin', 'commands that a test runs', 'commands that no test runs'), yes)}\n"
        "These commands do not work with Slipstream:\n\n"
        f"{table(('missing feature', 'commands that need it'), no)}"
    )


def _releases(those: list[Command]) -> list[str]:
    return [release for release in RELEASES if any(release in of.releases for of in those)]


def _lacks(those: list[Command]) -> list[Request]:
    """The requests that a command sends and that the `compat` of its release does not answer."""
    known = {request.number: request for request in requests()}
    lacked = {
        number
        for of in those
        for release in of.releases
        for number in of.sends
        if state(known[number], release) != "answered"
    }
    return [known[number] for number in sorted(lacked)]


def _version() -> str:
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    *releases, newest = RELEASES
    return f"This page compares Slipstream {ours} with RocketMQ {', '.join(releases)} and {newest}.\n"


PARTS: dict[str, Callable[[], str]] = {
    "version": _version, "requests": _summary, "missing-requests": _missing, "mqadmin": _mqadmin,
}  # fmt: skip
