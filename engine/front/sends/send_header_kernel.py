"""What a send's header says, compiled: that of codes 10, 310 and 320; anything else is unusual.

Implements: SendMessageRequestHeaderV2.decode (spec: remoting, 2 command fields)
"""

# mypy: disable-error-code="no-any-return,return-value"

from __future__ import annotations

import numpy as np

from engine.front.frames.header_kernel import UNKNOWN, Fields, FormWord, HeaderWord, read_fields, spelled
from engine.front.frames.send_words import FIELDS, Field, Unusual
from engine.protocol.remoting.codes import RequestCode
from ipc.arrays import Bytes, Words
from ipc.compiled.kernels import bare_kernel

SEND_MESSAGE, SEND_MESSAGE_V2 = int(RequestCode.SEND_MESSAGE), int(RequestCode.SEND_MESSAGE_V2)
SEND_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
LONG_NAMES = (  # SendMessageRequestHeader's, in the order of Field
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
    "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "brokerName",
)  # fmt: skip
IGNORED_NAMES = ("bname", "oway")  # RpcRequestHeader's that a broker does not look at
LONG_BYTES, LONG_ENDS = spelled((*LONG_NAMES, *IGNORED_NAMES))
FORM = np.zeros(len(FormWord), np.int64)
FORM[FormWord.FIELDS] = FORM[FormWord.LETTERS] = FIELDS
FORM[FormWord.TEXT], FORM[FormWord.OTHERS] = Field.PROPERTIES, UNKNOWN
REQUIRED = (1 << (Field.FLAG + 1)) - 1


@bare_kernel
def read_header(data: Bytes, at: int, end: int, is_json: bool, header: Words, text: Bytes) -> int:
    """The header at data[at:end] into `header`, its properties into `text`; 0, or why it is unusual."""
    if not read_fields(data, at, end, is_json, Fields(FORM, LONG_BYTES, LONG_ENDS), header, text):
        return Unusual.HEADER
    code = header[HeaderWord.CODE]
    if code in (SEND_MESSAGE_V2, SEND_BATCH):
        return Unusual.FIELDS if header[HeaderWord.LONG_NAMES] else 0
    if code == SEND_MESSAGE:
        return Unusual.FIELDS if header[HeaderWord.LETTERS] else 0
    return Unusual.CODE
