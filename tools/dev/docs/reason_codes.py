"""The page of all reason codes, of replication and of the doctor, from the tables that the commands use."""

from __future__ import annotations

from engine.protocol.ha.next_steps import DOCTOR, NEXT, PROGRESS
from engine.protocol.ha.wire import ADVICE, CODES, CloseReason, ReasonCode
from tools.dev.docs.tables import code, table
from tools.doctor.rows import MEANINGS

HEAD = """# Reason codes

`slipstream ha status`, `slipstream doctor`, `/readyz`, the metrics `rocketmq_ha_*` and the alert rules use these reason
codes. One reason code can stand for several ways in which a connection ended; the logs and `ha_ended.REASON` of
`slipstream counters` name the exact one. The broker proposes the same commands. STORE is your own store, HOST:PORT the
other side's `listenPort`, FILE the broker's broker.properties.

"""
OK = "Nothing is wrong: no connection ended, or the replica follows."


def page() -> str:
    """Return the whole page as Markdown."""
    return HEAD + "".join(f"## {reason}\n\n{_section(reason)}\n" for reason in ReasonCode) + _of_the_doctor()


def _section(reason: ReasonCode) -> str:
    if reason is ReasonCode.OK:
        return f"{OK}\n"
    rows = [
        (code(end.name), ADVICE[end], code(NEXT.get(end, DOCTOR)))
        for end in CloseReason
        if CODES[end] is reason and end is not CloseReason.NONE
    ]
    if reason in PROGRESS:
        what, command = PROGRESS[reason]
        rows.append(("no end of a connection", what, code(command)))
    return table(("how it ended", "cause", "next command"), rows)


def _of_the_doctor() -> str:
    rows = [(code(reason), *MEANINGS[reason]) for reason in MEANINGS]
    text = "A row of `slipstream doctor` can also have one of these codes; the row itself says what to type.\n\n"
    return f"## Only in `slipstream doctor`\n\n{text}{table(('reason', 'cause', 'next'), rows)}"
