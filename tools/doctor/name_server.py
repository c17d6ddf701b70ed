"""A name server seen from outside: which brokers it knows, whether they answer, whether other servers know the same."""

from __future__ import annotations

from engine.clients.admin import Member
from engine.protocol.ha.wire import ReasonCode
from tools.common.how_many import how_many
from tools.doctor import names
from tools.doctor.node import Asking, of_address
from tools.doctor.rows import Row, ok, unknown, wrong

CHECK = "name server"
ITS_FILE = "set remotingAllowList, registerAllowList and adminAllowList in its file: docs/security.md"


def rows(target: str, members: list[Member], others: list[str], asking: Asking) -> list[Row]:
    """Check what a name server knows."""
    clusters = sorted({one.cluster for one in members})
    seen = [
        ok(CHECK, f"{how_many(len(members), 'broker')} of {', '.join(clusters) or 'no cluster'} registered"),
        unknown(CHECK, "who may connect, register and change cannot be read from a name server", ITS_FILE),
    ]
    for at, said in names.asked([one for one in others if one != target], asking).items():
        command = f"`slipstream admin clusterList -n {at}`"
        if isinstance(said, str):
            seen.append(wrong(CHECK, ReasonCode.UNREACHABLE, said, command))
        elif sorted(said) != sorted(members):
            seen.append(wrong(CHECK, ReasonCode.IDENTITY, f"{at} knows other brokers than {target}", command))
        else:
            seen.append(ok(CHECK, f"{at} knows the same brokers"))
    return [*seen, *names.damage({target: members}, asking), *(_member(one, asking) for one in sorted(members))]


def _member(member: Member, asking: Asking) -> Row:
    who = f"{member.broker_name}:{member.broker_id} at {member.address}"
    silence = of_address(member.address, asking).silence.get("figures")
    if silence is not None:
        return wrong("broker", ReasonCode.UNREACHABLE, f"{who}: {silence}", f"`slipstream doctor {member.address}`")
    return ok("broker", f"{who} answers")
