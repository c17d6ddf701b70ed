"""The replicas that a read of stores on other hosts asks: for each store the most advanced one, or all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from spark_bridge.flight.client import RemoteStore
from spark_bridge.flight.errors import FlightError, ServerStopping, ServerUnreachable
from spark_bridge.options.flights import Flights
from spark_bridge.options.values import InvalidOption

GONE = (ServerUnreachable, ServerStopping)
Said = TypeVar("Said")


class _Status(NamedTuple):
    """The report of a replica on itself."""

    broker_name: str
    end: int


class Told(NamedTuple, Generic[Said]):
    """The answer of one of a broker's replicas; `said` is None where it does not answer."""

    broker_name: str
    location: str
    said: Said | None


class Answer(NamedTuple, Generic[Said]):
    """The answer of a store's replica, who it is, and all of its replicas, those that do not answer at the end."""

    said: Said
    location: str
    locations: tuple[str, ...]


def answers(flights: Flights, ask: Callable[[RemoteStore], Said]) -> Iterator[Answer[Said]]:
    """Yield one replica's answer for each store; if it goes away while it is asked, the next one is asked.

    Raises what it says, ServerUnreachable where no replica of a store answers, and InvalidOption where replicas of one
    are of several brokers, or several stores of one.
    """
    for locations, there in _stores(flights):
        yield _answer(flights, locations, there, ask)


def all_told(flights: Flights, ask: Callable[[RemoteStore], Said]) -> Iterator[Told[Said]]:
    """Yield what every replica of each store says, in the order of their addresses. Raises what `answers` raises."""
    for locations, there in _stores(flights):
        name = next(iter(there.values())).broker_name
        for location in locations:
            said = None
            if location in there:
                with suppress(*GONE), RemoteStore(location, flights.token, flights.roots) as store:
                    said = ask(store)
            yield Told(name, location, said)


def _stores(flights: Flights) -> Iterator[tuple[tuple[str, ...], dict[str, _Status]]]:
    """The addresses of each store's replicas, and those that answer."""
    brokers: dict[str, str] = {}
    for locations in flights.stores:
        there = _statuses(flights, locations)
        name = next(iter(there.values())).broker_name
        if name in brokers:
            what = f"{brokers[name]} and {locations[0]} hold the log of {name!r}"
            raise InvalidOption(f"{what}: replicas of one log are one path, with commas between them")
        brokers[name] = locations[0]
        yield locations, there


def _statuses(flights: Flights, locations: Sequence[str]) -> dict[str, _Status]:
    """Return the status of each replica that answers; raise the first error where none does."""
    there: dict[str, _Status] = {}
    silent: list[FlightError] = []
    for location in locations:
        try:
            with RemoteStore(location, flights.token, flights.roots) as store:
                status = store.store()
        except GONE as error:
            silent.append(error)
            continue
        there[location] = _Status(str(status["brokerName"]), int(status["maxPhysicalOffset"]))
    if not there:
        raise silent[0]
    if len({status.broker_name for status in there.values()}) > 1:
        listed = ", ".join(f"{location} of {status.broker_name!r}" for location, status in there.items())
        raise InvalidOption(f"one path is one broker's log, and here are {listed}; give `paths`, one for each broker")
    return there


def _answer(
    flights: Flights, locations: Sequence[str], there: dict[str, _Status], ask: Callable[[RemoteStore], Said]
) -> Answer[Said]:
    """Return one replica's answer. Raises the last error where all have gone meanwhile."""
    able = sorted(there, key=lambda location: there[location].end, reverse=True)
    while True:
        location = able.pop(0)
        try:
            with RemoteStore(location, flights.token, flights.roots) as store:
                said = ask(store)
        except GONE:
            if not able:
                raise
            del there[location]
            continue
        return Answer(said, location, tuple(sorted(locations, key=lambda location: location not in there)))
