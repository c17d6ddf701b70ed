"""RocketMQ's own integration tests, its published classes unmodified, against two running brokers, ours or theirs.

Two JVMs share the classes; one that says nothing for too long is ended, its class counts as hung, and a new one goes
on with the rest. What they said of two real brokers is in suite/real-4.9.7.txt and suite/real-5.3.3.txt.
"""

from __future__ import annotations

import random
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.harness.conditions import await_that
from tests.interop import jars
from tests.interop.rocketmq import VERSION, JavaProcess, NameServer
from tests.interop.sides import OurNameServer, OurSide, RealSide, Side, brokers_of

SOURCES = (jars.SUITE / "RunSuite.java", jars.SUITE / "org/apache/rocketmq/test/base/BaseConf.java")
OURS = ("ours 4.9", "ours 5")
THEIRS = ("4.9.7", "5.3.3")
BROKERS, CLUSTER = ("broker-a", "broker-b"), "DefaultCluster"
TESTS = "org.apache.rocketmq.test."
# SQL92 is refused by name, in the words of a RocketMQ broker without enablePropertyFilter. A test that they are said to
# ends with them: one of the two would wait a minute for its messages, the other ask in a loop for ever.
REFUSED, REFUSAL = "SqlFilterIT", "does not support consumer to filter message by SQL92"
JVMS, ATTEMPTS = 2, 3
PARTS = 9  # of RocketMQ's tests; `make test` runs one part against each kind of broker in OURS
CONSUME_SECONDS = 120  # how long a test waits for its messages before it gives up, as published
SILENT_SECONDS = 300.0  # no test of the suite is as long, those that wait for messages in vain included
LINE = re.compile(r"(PASS|FAIL|SKIP) (\d+) (?:(\w+)\()?([\w.]+)\)?(?: :: (.*))?")


class Outcome(NamedTuple):
    """What became of one test; `test` is empty where a whole class failed."""

    kind: str  # PASS, FAIL, SKIP
    seconds: float
    class_name: str  # without the part that all share
    test: str
    reason: str
    first: str = ""  # why it failed the first time, where it was run again

    @property
    def key(self) -> tuple[str, str]:
        """Which test it is."""
        return self.class_name, self.test


def classes() -> list[str]:
    """Those that take their brokers from BaseConf."""
    return (jars.SUITE / "classes.txt").read_text().split()


def by_length() -> dict[str, float]:
    """The seconds that each class took at real brokers, the longest first."""
    spent = dict.fromkeys((name.removeprefix(TESTS) for name in classes()), 0.0)
    for outcome in recorded().values():
        spent[outcome.class_name] = spent.get(outcome.class_name, 0.0) + outcome.seconds
    return {TESTS + name: spent[name] for name in sorted(spent, key=lambda name: (-spent[name], name))}


def part(seed: int, number: int) -> list[str]:
    """One of PARTS parts of the classes: the same one for the same seed, other ones for another number.

    Of so many classes that are about as long each part has one.
    """
    names, chance, chosen = list(by_length()), random.Random(seed), list[str]()
    for at in range(0, len(names), PARTS):
        alike = names[at : at + PARTS]
        chance.shuffle(alike)
        chosen += alike[number : number + 1]
    return sorted(chosen)


def outcome_of(line: str) -> Outcome | None:
    """What a line of RunSuite says of a test, if it says something."""
    match = LINE.fullmatch(line.strip())
    if match is None:
        return None
    kind, spent, test, name, reason = match.groups()
    return Outcome(kind, int(spent) / 1000, name.removeprefix(TESTS), test or "", reason or "")


def recorded(version: str = VERSION) -> dict[tuple[str, str], Outcome]:
    """What two real brokers of that version were seen to do."""
    outcomes = map(outcome_of, (jars.SUITE / f"real-{version}.txt").read_text().splitlines())
    return {outcome.key: outcome for outcome in outcomes if outcome is not None}


def is_as_expected(outcome: Outcome, kind: str = OURS[0]) -> bool:
    """Whether brokers of that kind may end so: as the real 4.9.7's, but for SQL92 at ours."""
    if outcome.class_name.endswith(REFUSED) and kind in OURS:
        return outcome.kind == "FAIL" and REFUSAL in outcome.reason
    real = recorded().get(outcome.key)
    return real is not None and real.kind == outcome.kind


class SuiteProcess(JavaProcess):
    """One JVM that runs some classes."""

    main_class, heap = "RunSuite", "512m"

    def __init__(self, home: Path, names: str) -> None:
        super().__init__(home, VERSION)
        places = {
            "names": names, "cluster": CLUSTER, "brokers": ",".join(BROKERS), "seconds": CONSUME_SECONDS,
            "refused": REFUSAL,
        }  # fmt: skip
        self.properties = [f"-Dsuite.{key}={value}" for key, value in places.items()]
        packages = ("java.nio", "java.lang", "java.util", "sun.nio.ch")
        self.properties += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in packages]
        self.outcomes: list[Outcome] = []
        self.running: str | None = None
        self.test = ""
        self.ended: set[str] = set()

    def class_path(self) -> str:
        """Our BaseConf lies before theirs."""
        return jars.of_suite(self.version).class_path(SOURCES)

    def archived(self) -> list[str]:
        """None: an archive holds only what comes first."""
        return []

    def run(self, names: Sequence[str]) -> None:
        """All of these classes, or as far as it comes: `ended` are those that are through."""
        process = self.spawn(*names, stdout=subprocess.PIPE)
        assert process.stdout is not None
        silence = threading.Timer(SILENT_SECONDS, process.kill)
        silence.start()
        try:
            for line in process.stdout:
                if self._heard(line.decode(errors="replace").strip()):
                    silence.cancel()
                    silence = threading.Timer(SILENT_SECONDS, process.kill)
                    silence.start()
        finally:
            silence.cancel()
            self.kill()
            process.stdout.close()

    def _heard(self, line: str) -> bool:
        word, _, rest = line.partition(" ")
        if word == "CLASS":
            self.running, self.test = rest, ""
        elif word == "TEST":
            self.test = rest.partition("(")[0]
        elif word == "END":
            self.ended.add(rest)
            self.running = None
        elif (outcome := outcome_of(line)) is not None:
            self.outcomes.append(outcome)
        else:
            return False
        return True


def run_classes(home: Path, names: str, chosen: Sequence[str], label: str = "jvm") -> list[Outcome]:
    """The outcomes of these classes, one after the other."""
    left, outcomes, number = list(chosen), list[Outcome](), 0
    while left:
        number += 1
        jvm = SuiteProcess(home / f"{label}-{number}", names)
        jvm.run(left)
        outcomes += jvm.outcomes
        left = [name for name in left if name not in jvm.ended]
        if left:
            hung = jvm.running or left[0]
            outcomes.append(Outcome("FAIL", SILENT_SECONDS, hung.removeprefix(TESTS), jvm.test, "it did not end"))
            left.remove(hung)
    return outcomes


def run_in_parallel(home: Path, names: str, chosen: Sequence[str]) -> list[Outcome]:
    """As `run_classes`, in JVMS processes, the longest classes first."""
    spent, outcomes, taking = by_length(), list[Outcome](), threading.Lock()
    shares: list[list[str]] = [[] for _ in range(JVMS)]
    weights = [0.0] * JVMS
    for name in (name for name in spent if name in chosen):
        lightest = weights.index(min(weights))
        shares[lightest].append(name)
        weights[lightest] += 1.0 + spent[name]

    def work(number: int) -> None:
        done = run_classes(home, names, shares[number], f"jvm-{number}")
        with taking:
            outcomes.extend(done)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(JVMS) if shares[number]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(outcomes, key=lambda outcome: outcome.key)


def run_with_patience(home: Path, names: str, chosen: Sequence[str], kind: str) -> list[Outcome]:
    """As `run_in_parallel`; classes that did not end as expected run again, alone, ATTEMPTS times in all at most.

    The tests have time limits of their own (a delayed message half a second, a put a fifth), which a machine full of
    other work breaks: both brokers stand still for as long. What never ends well is told as it is, and the rest, too.
    """
    outcomes = {outcome.key: outcome for outcome in run_in_parallel(home, names, chosen)}
    for number in range(1, ATTEMPTS):
        failed = {outcome.class_name for outcome in outcomes.values() if not is_as_expected(outcome, kind)}
        again = [name for name in by_length() if name.removeprefix(TESTS) in failed]
        for outcome in run_classes(home, names, again, f"again-{number}"):
            before = outcomes.get(outcome.key)
            if before is None or not is_as_expected(before, kind):
                first = "" if before is None else before.first or before.reason or before.kind
                outcomes[outcome.key] = outcome._replace(first=first)
    return sorted(outcomes.values(), key=lambda outcome: outcome.key)


@contextmanager
def two_brokers(home: Path, kind: str) -> Iterator[str]:
    """Two masters and a name server of that kind; the name server's address."""
    with ExitStack() as stack:
        line = kind.removeprefix("ours ")
        is_ours = kind in OURS
        version = line if not is_ours else dict(zip(OURS, THEIRS, strict=True))[kind]
        names: OurNameServer | NameServer
        where = home / "names"
        names = stack.enter_context(OurNameServer(where, version) if is_ours else NameServer(where, version))
        for number, name in enumerate(BROKERS):
            settings = {"brokerName": name, "namesrvAddr": names.address, "brokerClusterName": CLUSTER}
            sizes: dict[str, object]
            if is_ours:
                sizes = {"ringSizeInBytes": 1 << 24, "maxMessageSize": 4 << 20, "mappedFileSizeCommitLog": 64 << 20}
                side: Side = OurSide(home / f"broker{number}", version, **sizes, **settings)
            else:
                sizes = {"mappedFileSizeCommitLog": 64 << 20, "enablePropertyFilter": "true"}
                side = RealSide(home / f"broker{number}", version, **sizes, **settings)
            stack.callback(side.stop if is_ours else side.kill)
            side.start()
        await_that(lambda: brokers_of(names.address) == set(BROKERS), "both brokers are registered")
        yield names.address
