"""A producer of transactions by hand: sends half messages, ends them, is asked about them."""

from __future__ import annotations

import json
import time
from typing import NamedTuple

from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.sending.end_transaction import Decision
from tests.harness.front_client import FrontClient

KEY = "7F0000010001"


class Place(NamedTuple):
    """Where a half message is, as its producer knows it."""

    queue_offset: int
    physical_offset: int


class Deciding:
    """A producer of the group."""

    def __init__(self, port: int, group: str = "g") -> None:
        self._client, self._group = FrontClient(port), group
        self._asked: list[RemotingCommand] = []
        who = {"clientID": "p", "producerDataSet": [{"groupName": group}], "consumerDataSet": []}
        self._ask(RequestCode.HEART_BEAT, json.dumps(who).encode())

    def _ask(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        said = {name: str(value) for name, value in fields.items()}
        self._client.send(RemotingCommand(code, 7, ext_fields=said, body=body))
        while not (answer := self._client.take()).is_response:
            self._asked.append(answer)
        return answer

    def half(self, topic: str, key: str = KEY) -> Place:
        """One that it sends."""
        properties = {"TRAN_MSG": "true", "PGROUP": self._group, "UNIQ_KEY": key}
        answer = self._ask(
            RequestCode.SEND_MESSAGE,
            b"body",
            producerGroup=self._group,
            topic=topic,
            defaultTopic="TBW102",
            defaultTopicQueueNums=4,
            queueId=0,
            sysFlag=4,
            bornTimestamp=time.time_ns() // 1_000_000,
            flag=0,
            properties="".join(f"{name}\x01{value}\x02" for name, value in properties.items()),
            reconsumeTimes=0,
            unitMode="false",
            batch="false",
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert answer.ext_fields is not None
        return Place(int(answer.ext_fields["queueOffset"]), int(answer.ext_fields["msgId"][16:], 16))

    def asked(self) -> Place:
        """What it is asked about next."""
        return self.question()[1]

    def question(self) -> tuple[bytes, Place]:
        """Likewise, with the message's body, somewhere in what it is sent."""
        question = self._asked.pop(0) if self._asked else self._client.take()
        assert question.code == RequestCode.CHECK_TRANSACTION_STATE and question.ext_fields is not None
        place = Place(*(int(question.ext_fields[name]) for name in ("tranStateTableOffset", "commitLogOffset")))
        return bytes(question.body), place

    def end(self, at: Place, decision: Decision, *, is_asked: bool = False) -> RemotingCommand:
        """What becomes of the transaction."""
        return self._ask(
            RequestCode.END_TRANSACTION,
            producerGroup=self._group,
            tranStateTableOffset=at.queue_offset,
            commitLogOffset=at.physical_offset,
            commitOrRollback=int(decision),
            msgId=KEY,
            transactionId=KEY,
            fromTransactionCheck=str(is_asked).lower(),
        )
