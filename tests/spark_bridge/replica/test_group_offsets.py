"""How a stream's offsets are said to a broker: in an order in which RocketMQ's own loses none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from spark_bridge.replica import group_offsets
from spark_bridge.replica.remoting import Question


class Broker:
    """It has a table for each topic, made by the first commits that come together: of these the last one stays."""

    address = "127.0.0.1:1"

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, int]] = {}

    def ask_all(self, questions: Sequence[Question]) -> list[RemotingCommand]:
        known = set(self.tables)
        return [self._commit(question, known) for question in questions]

    def _commit(self, question: Question, known: set[str]) -> RemotingCommand:
        assert question.code == RequestCode.UPDATE_CONSUMER_OFFSET
        fields = question.fields or {}
        request = RemotingCommand(question.code)
        if fields["topic"] == "closed" and fields["queueId"] == "2":
            return request.answer(ResponseCode.SYSTEM_ERROR, "not this one", version=407)
        said = {int(fields["queueId"]): int(fields["commitOffset"])}
        if fields["topic"] in known:
            self.tables[fields["topic"]] |= said
        else:
            self.tables[fields["topic"]] = said
        return request.answer(ResponseCode.SUCCESS, version=407)


def test_no_first_commit_is_gone_where_a_broker_makes_its_table_of_those_that_come_together() -> None:
    broker = Broker()
    offsets = {(topic, queue_id): 10 * queue_id + 7 for queue_id in range(4) for topic in ("orders", "closed", "one")}
    del offsets["one", 0], offsets["one", 2], offsets["one", 3]
    refused = group_offsets.commit(cast(Any, broker), "report", offsets)
    assert broker.tables == {
        "orders": {0: 7, 1: 17, 2: 27, 3: 37},
        "closed": {0: 7, 1: 17, 3: 37},
        "one": {1: 17},
    }
    assert list(refused) == [("closed", 2)] and "not this one" in refused["closed", 2]
    assert group_offsets.commit(cast(Any, broker), "report", {}) == {}
