"""The counters of services: delayed messages and transactions of a master, side files of any broker."""

from __future__ import annotations

from engine.shared_memory.declarations import Group, One


class DelayCursors(Group):
    """The words of the delay role; how far the levels are is in `engine.shared_memory.delay_table`."""

    prefix = "delay."
    delivered = One("tally", "delay", "status", "delayed messages that were delivered")
    under_way = One("gauge", "delay", "status", "deliveries without an answer")
    refused = One("tally", "delay", "status", "deliveries that the log refused; they are retried")
    dropped = One("tally", "delay", "status", "messages that cannot be delivered, or whose log has expired")
    repeated = One(
        "tally", "delay", "status", "deliveries repeated after a death of the role, with a possible duplicate"
    )


class TransactionCursors(Group):
    """The words of the transactions role. Its offsets live through its death here; what others see of them are the
    consumer offsets of CID_RMQ_SYS_TRANS."""

    prefix = "transactions."
    is_begun = One("gauge", "transactions", "transactions", "1: the offsets in the next rows belong to this run")
    half_offset = One("gauge", "transactions", "transactions, status", "half messages below this offset are decided")
    op_offset = One("gauge", "transactions", "transactions, status", "op messages below this offset are used")
    put_ring = One("gauge", "transactions", "transactions", "ring of the last put, plus one")
    put_number = One("gauge", "transactions", "transactions", "number of the last put")
    put_offset = One("gauge", "transactions", "transactions", "half message of the last put")
    rounds = One("tally", "transactions", "status", "rounds over half messages")
    checks = One("tally", "transactions", "status", "requests to producers (code 39)")
    put_back = One("tally", "transactions", "status", "half messages moved to the end of their queue")
    given_up = One("tally", "transactions", "status", "half messages moved to TRANS_CHECK_MAX_TIME_TOPIC")


class SidecarCursors(Group):
    """The words of the sidecar role: what it has built since its last start, and how far it is."""

    prefix = "sidecar."
    done_offset = One(
        "gauge",
        "sidecar",
        "status",
        "sealed segments below this offset have side files, or a reason for none; lower during a rebuild",
    )
    built = One("gauge", "sidecar", "status", "side files built")
    refused = One("gauge", "sidecar", "status", "segments that cannot have a side file")
    waits_for = One("gauge", "sidecar", "status", "error number for which it waits (28: no disk space); 0: not waiting")
