"""`make peer-suite`: RocketMQ's own integration tests against brokers of ours, all of them, into docs/peer-suite.md.

    python -m tests.interop.peer_suite_ledger docs/peer-suite.md [--kind "ours 4.9"]... [--only TEXT] [--results DIR]

With --results, what a kind of broker was seen to do is kept there, and not run again. Real ones are recorded; they run
where they are asked for.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.interop import jars
from tests.interop.peer_suite import (
    OURS,
    THEIRS,
    Outcome,
    classes,
    is_as_expected,
    recorded,
    run_with_patience,
    two_brokers,
)
from tests.interop.rocketmq import VERSION

REASON_LENGTH = 100
HEAD = """# RocketMQ's own integration tests

Written by `make peer-suite`. Apache publishes the integration tests of 4.9.7 with their classes
(`org.apache.rocketmq:rocketmq-test`, classifier `tests`). They run here as published. Only `BaseConf`, from which
they take their brokers, is replaced (`tests/interop/suite`): it names a name server and two Slipstream brokers that
already run. The 45 classes are all but those of TLS, DLedger and LMQ, which start brokers of their own.

The results of two real brokers of each version are recorded (`tests/interop/suite/real-4.9.7.txt`, `real-5.3.3.txt`).
A test is as expected if it ends here as at a real 4.9.7, whose tests these are. The two tests of `SqlFilterIT` are
refused here, because Slipstream does not evaluate SQL92; the words are RocketMQ's for a broker without
`enablePropertyFilter`. At a real 5.3.3 consumers of a new group miss what is sent before they have asked where an
empty queue ends (DECISIONS 43), which causes most of its failures. The tests have time limits, and the machine does
other work. So a class that did not end as expected was run again alone, three times in all at most, and the table
says so.

"""
Outcomes = Mapping[tuple[str, str], Outcome]


def outcomes_of(kind: str, only: str, results: Path) -> Outcomes:
    """What brokers of that kind do, from a run now or from the one that is kept."""
    kept = results / f"{kind.replace(' ', '_')}.json"
    if not kept.exists():
        chosen = [name for name in classes() if only in name]
        with ExitStack() as stack:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peer-suite-")))
            outcomes = run_with_patience(home, stack.enter_context(two_brokers(home, kind)), chosen, kind)
        kept.write_text(json.dumps(outcomes))
    every = [Outcome(*each) for each in json.loads(kept.read_text())]
    for outcome in every:
        if not is_as_expected(outcome, kind):
            print(f"{kind}: {outcome.kind} {outcome.class_name} {outcome.test}: {outcome.reason}", flush=True)
    return {outcome.key: outcome for outcome in every}


def page(by_kind: Mapping[str, Outcomes]) -> str:
    """The whole document."""
    kinds = [kind for kind in (*THEIRS[1:], *OURS) if kind in by_kind]
    lines = [f"| class | test | real 4.9.7 | {' | '.join(kinds)} |", "| --- | --- | --- |" + " --- |" * len(kinds)]
    real = recorded()
    keys = sorted({*real, *(key for outcomes in by_kind.values() for key in outcomes)})
    for key in keys:
        cells = [_cell(outcomes.get(key)) for outcomes in (real, *(by_kind[kind] for kind in kinds))]
        lines.append(f"| `{key[0].removeprefix('client.')}` | {key[1]} | {' | '.join(cells)} |")
    return HEAD + "".join(map(_sum, by_kind.items())) + "\n" + "\n".join(lines) + "\n"


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not run"
    kind = {"PASS": "passed", "SKIP": "ignored by its authors", "FAIL": "**failed**"}[outcome.kind]
    if outcome.kind == "PASS" and outcome.first:
        kind = f"passed when run again; before: {outcome.first.replace('|', '/')[:REASON_LENGTH]}"
    elif outcome.kind == "FAIL" and is_as_expected(outcome):
        kind = "refused (SQL92)"
    elif outcome.kind == "FAIL":
        kind += ": " + outcome.reason.replace("|", "/")[:REASON_LENGTH]
    return kind


def _sum(of: tuple[str, Outcomes]) -> str:
    kind, outcomes = of
    counts = Counter(outcome.kind for outcome in outcomes.values())
    wrong = sum(not is_as_expected(outcome, kind) for outcome in outcomes.values())
    said = "all as expected" if not wrong else f"{wrong} not as the real 4.9.7's"
    return (
        f"- {kind}: {counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} ignored by their authors;"
        f" {sum(bool(outcome.first) for outcome in outcomes.values())} run again;"
        f" {said} (Python {platform.python_version()}).\n"
    )


def main() -> int:
    """Run what is asked for; 1 where something is not as expected, 2 where RocketMQ's tests are not here."""
    parser = argparse.ArgumentParser(prog="make peer-suite")
    parser.add_argument("out", type=Path)
    parser.add_argument("--kind", action="append", choices=[*OURS, *THEIRS], help="which brokers; ours if not said")
    parser.add_argument("--only", default="", help="classes whose name contains this")
    parser.add_argument("--results", type=Path)
    asked = parser.parse_args()
    if reason := jars.of_suite(VERSION).missing():
        print(f"make peer-suite: {reason}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="peer-suite-") as directory:
        results = asked.results or Path(directory)
        results.mkdir(parents=True, exist_ok=True)
        ran = {kind: outcomes_of(kind, asked.only, results) for kind in asked.kind or OURS}
        by_kind: dict[str, Outcomes] = {THEIRS[1]: recorded(THEIRS[1]), **ran}
    asked.out.write_text(page(by_kind))
    wrong = [one for kind in OURS for one in by_kind.get(kind, {}).values() if not is_as_expected(one)]
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
