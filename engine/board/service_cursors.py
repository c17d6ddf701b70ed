"""The counters of services: delayed messages and transactions of a master, side files of any broker."""

from __future__ import annotations

from engine.board.declarations import Group, One


class DelayCursors(Group):
    """The words of the delay role; how far the levels are is in `engine.board.delay_table`."""

    prefix = "delay."
    delivered = One("tally", "delay", "status", "delayed messages that were put where they belong")
    under_way = One("gauge", "delay", "status", "of them without an answer")
    refused = One("tally", "delay", "status", "puts that the log did not take: they are tried again")
    dropped = One("tally", "delay", "status", "messages that can be put nowhere, or whose log has expired")
    repeated = One(
        "tally", "delay", "status", "put again after a death, because nobody knew what became of them: perhaps twice"
    )


class TransactionCursors(Group):
    """The words of the transactions role. Its offsets live through its death here; what others see of them are the
    consumer offsets of CID_RMQ_SYS_TRANS."""

    prefix = "transactions."
    is_begun = One("gauge", "transactions", "transactions", "1: the offsets below are those of this run")
    half_offset = One("gauge", "transactions", "transactions, status", "half messages below are done with")
    op_offset = One("gauge", "transactions", "transactions, status", "op messages below are done with")
    put_ring = One("gauge", "transactions", "transactions", "in which ring the last put is, and one")
    put_number = One("gauge", "transactions", "transactions", "under which number")
    put_offset = One("gauge", "transactions", "transactions", "which half message it stands for")
    rounds = One("tally", "transactions", "status", "how often half messages were looked at")
    checks = One("tally", "transactions", "status", "how often a producer was asked (39)")
    put_back = One("tally", "transactions", "status", "half messages put at their queue's end again")
    given_up = One("tally", "transactions", "status", "half messages moved to TRANS_CHECK_MAX_TIME_TOPIC")


class SidecarCursors(Group):
    """The words of the sidecar role: what it has built since its last start, and how far it is."""

    prefix = "sidecar."
    done_offset = One(
        "gauge", "sidecar", "status",
        "sealed segments below have side files, or a reason for none; lower while one is built anew",
    )  # fmt: skip
    built = One("gauge", "sidecar", "status", "side files built")
    refused = One("gauge", "sidecar", "status", "segments that can have none")
    waits_for = One("gauge", "sidecar", "status", "error number of what it waits for (28: no room); 0: of nothing")
