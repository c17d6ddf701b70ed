"""Frames that are nearly right: captured requests of real RocketMQ processes, changed in many ways."""

from __future__ import annotations

import base64
import json
import lzma
import random
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from engine.protocol.remoting.frame import FrameSplitter, MalformedFrame, RemotingCommand, Serialize, decode, encode
from tests.fuzz.bodies import ODD_TEXTS, changed_json

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SECONDS = 60.0
ASKED_OF_CLIENTS = (39, 40, 220, 221, 307, 309, 326)
READ_BYTES = 1 << 20
VALUES = (
    "",
    "0",
    "-1",
    "7",
    "true",
    "9" * 40,
    "null",
    "x" * 5000,
    "\x01\x02\x00",
    "é\U0001f4a5",
    "%s%n",
    "NaN",
    "2147483647",
    "-2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    *ODD_TEXTS,
)
BODIES = (b"", b"{}", b"[]", b"{" * 2000, b"[" * 2000, b"\0" * 50, b"\xff\xfe" * 40, b"null", b'"text"', b"7",
          b"\0\0\0\x7f" * 30, b"\xff\xff\xff\xff" * 30, b"\0\0\0\x58\0\0\0\0" * 11)  # fmt: skip
NAMES = ("topic", "brokerId", "clusterName", "brokerName", "brokerAddr", "groupName", "namespace", "key", "bodyCrc32")
# Of those that serve clients: what administrators ask about them has no recorded request.
CLIENT_NAMES = (
    "topic", "group", "consumerGroup", "producerGroup", "clientID", "clientId", "queueId", "queueOffset", "offset",
    "timestamp", "commitOffset", "maxMsgNums", "sysFlag", "subscription", "subVersion", "suspendTimeoutMillis",
    "beginTimestamp", "endTimestamp", "maxNum", "isForce", "isOffset", "srcGroup", "destGroup", "statsName", "statsKey",
    "filterGroups", "compareGroup", "index", "count", "msgId", "offsetMsgId", "commitLogOffset", "originMsgId",
    "delayLevel", "originTopic", "tranStateTableOffset", "commitOrRollback", "transactionId", "jstackEnable", "lo",
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "maxReconsumeTimes", "setZeroIfNotFound",
    "readable",
)  # fmt: skip
CLIENT_CODES = (
    10, 11, 12, 14, 15, 18, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 41, 42, 46, 202, 203, 204, 208, 220, 221, 222,
    223, 225, 300, 303, 305, 306, 307, 308, 309, 310, 314, 315, 316, 317, 318, 319, 320, 321, 323, 324, 325, 326, 328,
    329, 343, 345, 351, 352, 353, 361, 362, 363, 370, 2006, 2007, 200_050, 200_051, 200_052,
)  # fmt: skip
CLIENT_VALUES = (
    "Fuzz",
    "TBW102",
    "0",
    "1",
    "-1",
    "32",
    "true",
    "A || B",
    "*",
    "9223372036854775807",
    "99999999999999999999",
)
CLIENT_BODIES = {code: json.dumps(value).encode() for code, value in {
    34: {"clientID": "10.0.0.1@1", "heartbeatFingerprint": 7, "withoutSub": False,
         "producerDataSet": [{"groupName": "P"}],
         "consumerDataSet": [{"groupName": "Fuzz", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                              "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
                              "subscriptionDataSet": [{"topic": "Fuzz", "subString": "a||b", "tagsSet": ["a", "b"],
                                                       "codeSet": [97, 98], "subVersion": 5, "classFilterMode": False,
                                                       "expressionType": "TAG"}]}]},
    41: {"consumerGroup": "Fuzz", "clientId": "c", "onlyThisBroker": True,
         "mqSet": [{"topic": "Fuzz", "brokerName": "b", "queueId": 0}]},
    42: {"consumerGroup": "Fuzz", "clientId": "c", "mqSet": [{"topic": "Fuzz", "brokerName": "b", "queueId": 0}]},
    46: {"clientId": "c", "group": "Fuzz", "subscriptionData": {"topic": "Fuzz", "subString": "a", "codeSet": [97]}},
    220: {"offsetTable": {"{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"Fuzz\"}": 5}},
    225: {"consumerGroup": "Fuzz"}, 17: {"topicName": "Fuzz"}, 200: {"groupName": "Fuzz", "retryQueueNums": 1},
    351: {"topicConfigList": [{"topicName": "Fuzz", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}]},
}.items()}  # fmt: skip
NUMBERS = (0, 1, -1, 127, 128, 255, 2**15 - 1, 2**15, 2**24 - 1, 2**31 - 1, -(2**31))


def captured_requests(*servers: str) -> list[RemotingCommand]:
    """One request of every code and form that a server of that kind was sent."""
    found: dict[tuple[int, Serialize, int], RemotingCommand] = {}
    for path in sorted(GOLDEN.glob("rocketmq-*/*remoting*.jsonl.xz")):
        with lzma.open(path, "rt") as lines:
            for line in map(json.loads, lines):
                if line["kind"] != "response" and line["server"].startswith(servers):
                    command = decode(base64.b64decode(line["frame"])[4:])
                    found.setdefault((command.code, command.serialize, bool(len(command.body))), command)
    return list(found.values())


def clients_requests(seed: int = 1) -> list[RemotingCommand]:
    """What RocketMQ's clients of both lines asked a broker for, and for each code some fields by chance."""
    dice, requests = random.Random(seed), list[RemotingCommand]()
    for path in sorted((Path(__file__).parent / "requests").glob("client-*.txt")):
        requests += [decode(base64.b64decode(line)) for line in path.read_text().split()]
    for code in CLIENT_CODES:
        for _ in range(3):
            names = dice.sample(CLIENT_NAMES, dice.randint(2, 20))
            ext = {name: dice.choice(CLIENT_VALUES) for name in names}
            requests.append(RemotingCommand(code, ext_fields=ext, body=dice.choice(BODIES), version=407))
    for code, body in CLIENT_BODIES.items():
        requests += [RemotingCommand(code, ext_fields={}, body=body, version=version) for version in (407, 479)]
    return requests


class Mutator:
    """Changed frames without end, the same ones for the same seed."""

    def __init__(self, requests: list[RemotingCommand], seed: int) -> None:
        self._requests, self._random = requests, random.Random(seed)

    def frames(self, count: int) -> Iterator[bytes]:
        for _ in range(count):
            yield self._frame()

    def _frame(self) -> bytes:
        dice = self._random
        request = replace(dice.choice(self._requests), opaque=dice.getrandbits(31))
        if dice.random() < 0.5:
            request = self._with_other_fields(request)
        if dice.random() < 0.2:
            request = replace(request, serialize=dice.choice(tuple(Serialize)))
        try:
            frame = bytearray(encode(request))
        except MalformedFrame:  # a number that its form has no room for
            frame = bytearray(encode(replace(request, code=1, serialize=Serialize.JSON)))
        if request.serialize is Serialize.ROCKETMQ and dice.random() < 0.2:
            return _cut_anywhere(frame, dice)
        for _ in range(dice.choice((0, 1, 1, 2, 8))):
            self._change(frame)
        return bytes(frame)

    def _with_other_fields(self, request: RemotingCommand) -> RemotingCommand:
        dice, ext = self._random, dict(request.ext_fields or {})
        for _ in range(dice.randint(1, 4)):
            name = dice.choice([*ext, *NAMES])
            if dice.random() < 0.3:
                ext.pop(name, None)
            else:
                ext[name] = dice.choice(VALUES)
        code = dice.choice((request.code, request.code, dice.choice(NUMBERS)))
        body = bytes(request.body)
        if body and dice.random() < 0.5:
            body = changed_json(dice, body) or body
        elif dice.random() < 0.3:
            body = dice.choice((*BODIES, body[: len(body) // 2], dice.randbytes(50)))
        version = dice.choice((request.version, 0, 36, 401, 479))
        return replace(request, code=code, ext_fields=dice.choice((ext, None)), body=body, version=version)

    def _change(self, frame: bytearray) -> None:
        dice, at = self._random, self._random.randrange(len(frame))
        match dice.randrange(7):
            case 0:
                frame[at] = dice.randrange(256)
            case 1:
                frame[at] ^= 1 << dice.randrange(8)
            case 2:
                del frame[at : at + dice.randint(1, 40)]
            case 3:
                frame[at:at] = dice.randbytes(dice.randint(1, 40))
            case 4:
                frame[at:at] = frame[at : at + dice.randint(1, 200)]
            case 5 if len(frame) >= 8:  # a length
                frame[(at % 2) * 4 : (at % 2) * 4 + 4] = (dice.choice(NUMBERS) & 0xFFFFFFFF).to_bytes(4)
            case _:
                frame[at : at + 4] = dice.randbytes(4)
        if not frame:
            frame += b"\0"


def _cut_anywhere(frame: bytearray, dice: random.Random) -> bytes:
    """A header that ends too early, in a frame that is whole all the same."""
    header = int.from_bytes(frame[5:8])
    cut = dice.randint(0, header)
    short = frame[8 : 8 + cut]
    return (4 + cut).to_bytes(4) + ((1 << 24) | cut).to_bytes(4) + short


class Attacker:
    """Sends frames to one port of 127.0.0.1, reads what comes back, begins anew where it is hung up on."""

    def __init__(self, port: int) -> None:
        self._port, self._splitter = port, FrameSplitter()
        self._socket: socket.socket | None = None
        self.sent = self.connections = 0

    def send(self, frame: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=SECONDS)
            self._splitter, self.connections = FrameSplitter(), self.connections + 1
        try:
            self._socket.sendall(frame)
            self.sent += 1
            self._socket.setblocking(False)
            while data := self._socket.recv(READ_BYTES):
                for answer in self._splitter.feed(data):
                    said = decode(answer)  # a heartbeat among the frames makes it a client that is asked, too
                    assert said.is_response or said.code in ASKED_OF_CLIENTS, f"it says {said}"
            self.hang_up()
        except BlockingIOError:
            self._socket.settimeout(SECONDS)
        except ConnectionError:
            self.hang_up()
        if leaves_waiting(frame):
            self.hang_up()  # it would take the next frames for the rest of this one

    def hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def leaves_waiting(frame: bytes) -> bool:
    """Whether the other side waits for more of it, or hangs up."""
    splitter = FrameSplitter()
    try:
        splitter.feed(frame)
    except MalformedFrame:
        return True
    return bool(splitter.pending_bytes)


def still_answers(port: int, code: int) -> bool:
    """A good request on a new connection gets its answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as peer:
        peer.sendall(encode(RemotingCommand(code, 77, ext_fields={}, version=407)))
        splitter, frames = FrameSplitter(), list[bytes]()
        while not frames:
            data = peer.recv(READ_BYTES)
            if not data:
                return False
            frames = splitter.feed(data)
        answer = decode(frames[0])
        return (answer.opaque, answer.code) == (77, 0)
