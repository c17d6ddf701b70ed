"""Members of one group in as many processes, over one backlog: up to as many as use up the CPUs, and beyond."""

from __future__ import annotations

from statistics import median

from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results
from tools.dev.bench.bed.members.send import QUEUES
from tools.dev.bench.bed.members.servers import Subject, at_hand
from tools.dev.bench.bed.programs import begin, programs, report_of
from tools.dev.bench.works.python_consume import CONFLUENT, KAFKA_PYTHON, LOCAL, REDIS, WIRE, fill, new_group

SIZE, MESSAGES, MEMBERS, TOPIC = 1024, 400_000, (1, 2, 4, 8), "members"
SUBJECTS = (LOCAL, WIRE, CONFLUENT, KAFKA_PYTHON, REDIS)
TWO_GOAL, MORE_GOAL = 1.8, 0.9


def measure(of: Asked, to: Results) -> None:
    """Rates of all members together, from the first one's first message to the last one's last."""
    with at_hand(of, of.scratch / "python-members") as bed:
        subjects = {name: bed.subjects[name] for name in SUBJECTS if name in bed.subjects}
        fill(bed._replace(subjects=subjects), TOPIC, SIZE, MESSAGES)
        for name, subject in subjects.items():
            _compare(of, name, subject, to)


def _compare(of: Asked, name: str, subject: Subject, to: Results) -> None:
    rates = {members: median(_rate(of, subject, members) for _ in range(of.repeat)) for members in MEMBERS}
    for members, rate in rates.items():
        work = f"{members} members of a group" if members > 1 else "1 member of a group"
        to.figure(work, name, rate, "messages/s", note=f"{rate / rates[1]:.2f} times one member")
    if name in (LOCAL, WIRE):
        to.at_least(f"{name}: 2 members", rates[2], rates[1], "1 member", TWO_GOAL)
        to.at_least(f"{name}: 8 members", rates[8], rates[2], "2 members", MORE_GOAL)


def _rate(of: Asked, subject: Subject, members: int) -> float:
    group, share = new_group(), MESSAGES // members
    command = subject.command(of, TOPIC, group, queues=QUEUES // members, messages=share)
    with programs([command] * members) as processes:
        for process in processes:
            begin(process)
        reports = [report_of(process) for process in processes]
    taken_ns: int = max(one["ended_ns"] for one in reports) - min(one["began_ns"] for one in reports)
    return int(sum(one["messages"] for one in reports)) / taken_ns * 1e9
