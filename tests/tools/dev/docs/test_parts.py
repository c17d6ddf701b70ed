"""The generated parts of README and of the page on compatibility, and the data on RocketMQ that they are made of."""

from __future__ import annotations

import pytest

from engine.protocol.remoting.codes import KINDS, RequestCode, RequestKind
from tools.dev.bench import ledger
from tools.dev.docs import compatibility, parts, peer_figures
from tools.dev.docs.benchmarks import KEPT
from tools.dev.docs.compatibility import RELEASES, commands, requests, state, why_not
from tools.dev.docs.places import ROOT

OUR_OWN_MIN = 29_000  # requests that RocketMQ does not have


@pytest.mark.parametrize("document", parts.PARTS)
def test_a_document_has_its_parts_as_they_are_generated(document: str) -> None:
    assert parts.names_in(document) == parts.PARTS[document].keys()
    assert (ROOT / document).read_text() == parts.current(document), "python -m tools.dev.docs.parts"


def test_a_request_has_the_number_and_the_name_that_rocketmq_gives_it() -> None:
    theirs = {request.number: request.name for request in requests()}
    assert len(theirs) == len(requests())
    assert {int(one): one.name for one in RequestCode if one < OUR_OWN_MIN}.items() <= theirs.items()


def test_every_request_that_is_not_answered_belongs_to_something_that_is_missing() -> None:
    for request in requests():
        for release in request.releases:
            if state(request, release) == "not supported":
                assert why_not(request)


@pytest.mark.parametrize("release", RELEASES)
def test_all_that_slipstream_knows_of_a_release_counts_as_answered_or_refused(release: str) -> None:
    known = {request.number: request for request in requests() if release in request.releases}
    for one in RequestCode:
        if one in known and KINDS[one] is not RequestKind.PUSH:
            assert state(known[one], release) in ("answered", "refused by name"), one


def test_a_command_of_mqadmin_sends_requests_of_its_release() -> None:
    for command in commands():
        for release in command.releases:
            known = {request.number for request in requests() if release in request.releases}
            assert known.issuperset(command.sends), f"{command.name} of {release}"
    text = compatibility.PARTS["mqadmin"]()
    assert not [command.name for command in commands() if f"`{command.name}`" not in text]


def test_the_figures_name_what_is_slower_too() -> None:
    works = {one["work"]: one for one in ledger.read(KEPT)}
    text = peer_figures.part()
    assert "| slower: " in text
    for row in peer_figures.ROWS:
        assert [of for of in works[row.work]["ratios"] if of["work"] == row.ratio and of["against"] == row.peer]
        assert f"| {row.words} | " in text
