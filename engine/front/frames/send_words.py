"""Words that compiled sends and Python share: what a frame says, what is under way, why one leaves the fast path."""

from __future__ import annotations

from enum import IntEnum

from engine.front.frames.header_kernel import FIELD_WORDS, HeaderWord

FIELDS = 14  # of a send request that are looked at, in the order of SendMessageRequestHeaderV2's letters
PROPERTIES_MAX = 32  # of one message; more leave the fast path
PROPERTY_WORDS = 4
RECORDS_MAX = 64  # of a batch; more leave the fast path
UNIQUE_KEY_BYTES = 64  # of the longest on the fast path
SLOT_UNKNOWN = -1


class Field(IntEnum):
    """The fields of SendMessageRequestHeaderV2, by letter."""

    PRODUCER_GROUP = 0
    TOPIC = 1
    DEFAULT_TOPIC = 2
    DEFAULT_QUEUES = 3
    QUEUE_ID = 4
    SYS_FLAG = 5
    BORN_MS = 6
    FLAG = 7
    PROPERTIES = 8
    RECONSUME_TIMES = 9
    UNIT_MODE = 10
    MAX_RECONSUME_TIMES = 11
    BATCH = 12
    BROKER_NAME = 13


HEADER_WORDS = HeaderWord.FIELDS + FIELDS * FIELD_WORDS


class PropertyWord(IntEnum):
    """One property of a message: where it lies in the text, name and value with what stands between them; its hash."""

    AT = 0
    NAME_BYTES = 1
    BYTES = 2
    HASH = 3


class PropertiesWord(IntEnum):
    """Words about a message's properties."""

    COUNT = 0
    WAIT_INDEX = 1  # which of them is WAIT; -1: none
    WAITS = 2
    UNIQUE_AT = 3
    UNIQUE_BYTES = 4
    OUT_BYTES = 5  # of the property string that is stored


class RulesWord(IntEnum):
    """Words that are the same for all sends of a broker."""

    MAP_CAPACITY = 0
    TRAILING = 1  # a separator behind the last property
    REMOVES_WAIT = 2
    NEEDS_UNIQUE_KEY = 3
    BODY_BYTES_MAX = 4
    OWN_PROPERTIES = 6  # the broker's: how many, then PROPERTY_WORDS of each, in a text of their own
    OWN_FIRST = 8


OWN_MAX = 3  # CLUSTER; 5.x: MSG_REGION and TRACE_ON before it
RULES_WORDS = RulesWord.OWN_FIRST + OWN_MAX * PROPERTY_WORDS


class SendFallback(IntEnum):
    """Reasons why the compiled way does not take a frame. They are negative; nothing was changed."""

    HEADER = -1  # not as Java writes it
    CODE = -2  # another request
    FIELDS = -3  # one that is missing, or not plain
    TOPIC = -4  # it is not in the table
    QUEUE = -5  # beyond the topic's, or without a slot yet
    PROPERTIES = -6  # policies, or no plain list of properties
    SIZE = -7
    NOT_ACCEPTING = -8  # the broker does not take messages just so, or others are in line before it
    ROOM = -9  # none in the ring, among those under way, or for this connection


class SendBlock(IntEnum):
    """The words of a block: where all lies that the kernels look at, how much of it there is, and what they say."""

    DATA_AT = 0  # the ring
    DATA_BYTES = 1
    DESCRIPTORS_AT = 2
    DESCRIPTORS = 3
    CONTROL_AT = 4
    LOCAL_AT = 5
    COUNTERS_AT = 6
    COUNTERS = 7
    BELL = 8  # indices of counters
    BROKER_STATE = 9
    DISK_STATE = 10
    IN_SYNC_SLAVES = 11
    LOG_END = 12
    FLUSH_ERRNO = 13
    REACHED_FIRST = 14  # those that a put waits for; -1: none
    REACHED_SECOND = 15
    IN_SYNC_MIN = 16  # of slaves, to take a message at all
    TABLE_AT = 17  # the pipeline's
    ROWS = 18
    STATE_AT = 19
    DONE_AT = 20
    LATENCIES_AT = 21
    LATENCIES = 22
    PUTS_MAX = 23
    BYTES_MAX = 24
    BUFFER_AT = 25  # what is received
    BUFFER_BYTES = 26
    TOPICS_AT = 27
    TOPICS = 28
    NAMES_AT = 29
    NAMES_BYTES = 30
    SLOTS_AT = 31
    SLOTS = 32
    SEED = 33
    PEERS_AT = 34
    PEERS = 35
    ASKED_AT = 36  # as many rows as the pipeline's
    UNIQUE_AT = 37
    SCRATCH_AT = 38
    TEXT_AT = 39
    RULES_AT = 40
    OWN_TEXT_AT = 41
    OWN_TEXT_BYTES = 42
    RECORD_BYTES_MAX = 43
    REASON = 44  # why the last call ended: 0, no whole frame is left; else SendFallback
    TAKEN = 45  # messages that the last call took
    PEER_PUTS_MAX = 46
    PEER_BYTES_MAX = 47
    OUT_AT = 48  # answers
    OUT_BYTES = 49
    RUNS_AT = 50
    RUNS = 51
    FORMS_AT = 52
    FORMS_TEXT_AT = 53
    FORMS_TEXT_BYTES = 54
    STORE_HOST = 55
    NEXT_ROW = 56  # of `done`: from which on it is not looked at yet
    ROWS_FOR_PYTHON = 57  # rows of `done` that compiled code does not answer, moved to its beginning
    ANSWER_BYTES_MAX = 58
    IS_OPEN = 59  # Python's word: whether the broker takes messages just so
    UNDER_WAY = 60  # messages, and their bytes
    BYTES_UNDER_WAY = 61
    STORED = 62  # messages in the log: answered so, or sent oneway
    LENGTHS_AT = 63  # of the records of batches
    UNRUNG = 64  # bytes that went into the ring since the writer was rung for
    RINGS_FROM = 65  # from how many of them on it is rung for by compiled code
    TEMPLATE_AT = 66  # an empty record


class TopicWord(IntEnum):
    """A row of the table of topics. Without a name it is free; without queues its sends leave the fast path."""

    NAME_AT = 0
    NAME_BYTES = 1
    QUEUES = 2
    SLOTS_AT = 3


class PeerWord(IntEnum):
    """A connection: how its host stands in a record, and what of it is under way."""

    IS_FAST = 0
    ADDRESS = 1
    PORT = 2
    PUTS = 3
    BYTES = 4
    NUMBER = 5


class AskedWord(IntEnum):
    """Words that are kept for a message in the ring, to answer it."""

    NUMBER = 0
    OPAQUE = 1
    PEER = 2
    PEER_NUMBER = 3
    FORM = 4
    QUEUE_ID = 5
    UNIQUE_BYTES = 6
    BYTES = 7
    RECORDS = 8


class RunWord(IntEnum):
    """Answers of one connection that lie one behind the other."""

    PEER = 0
    AT = 1
    END = 2


class AnswerForm(IntEnum):
    """Forms of the answer to a request."""

    JSON = 0
    ROCKETMQ = 1
    KEYLESS_JSON = 2  # of a batch without a unique key
    KEYLESS_ROCKETMQ = 3
    NONE = 4  # oneway


TOPIC_WORDS, PEER_WORDS, ASKED_WORDS, RUN_WORDS = len(TopicWord), len(PeerWord), len(AskedWord), len(RunWord)


class ScratchWord(IntEnum):
    """Offsets of a scratch area's parts."""

    HEADER = 0
    PROPERTIES = 64
    ENTRIES = 128
    ORDER = 512
    END = 640


FORM_WORDS, FORM_PARTS = 64, 20  # of each form: how many parts, then where each lies, how long, its hole
STATUS_CODES = 32
PREFIXED = 16  # of a hole: its length as i32 comes before it


class PartWord(IntEnum):
    """A part of an answer, and the hole behind it."""

    AT = 0
    BYTES = 1
    HOLE = 2


PART_WORDS = len(PartWord)


class FormsWord(IntEnum):
    """Offsets of the parts of the forms' words."""

    FORMS = 0
    STATUS_CODES = 256  # response code of each status; -1: Python answers it
    END = 288


class Hole(IntEnum):
    """Values that follow a part of an answer."""

    END = 0
    CODE = 1
    OPAQUE = 2
    QUEUE_ID = 3
    QUEUE_OFFSET = 4
    MESSAGE_ID = 5
    TRANSACTION_ID = 6
    CODE_16 = 7
    OPAQUE_32 = 8
    FIELDS_BYTES = 9  # of all that follows, as i32
