"""Where RocketMQ 4.9 and 5.x differ: one field a rule, one instance of `Line` a release line.

Implements: the differences between 4.9.7 and 5.3.3 (spec: store-formats, ha-protocol, remoting)
The setting `compat` names one of `LINES`; `line_of` is the only place that takes the name. Everybody else asks a field
for what it says, never for a version: a third line is one more instance. Grouped by what the rules are about. A flag is
true where brokers of the line do what its comment says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from store import names


class PutRules(NamedTuple):
    """A message before it is stored: SendMessageProcessor, MessageDecoder, CommitLog, HookUtils, MultiDispatch."""

    map_capacity: int  # of the HashMap that a property string is parsed into
    trailing_separator: bool  # behind the last property
    adds_region: bool  # MSG_REGION and TRACE_ON, to batches too
    adds_unique_key: bool  # UNIQ_KEY where the client gave none, but not to batches
    adds_transaction_id: bool  # __transactionId__ to half messages that have a UNIQ_KEY
    removes_wait: bool  # from single messages, unless they are written out once more (delay, half)
    removes_pop_check: bool  # POP_CK
    stores_empty_bodies: bool
    measures_text: bool  # limits count UTF-16 units of the text, then bytes of the property string
    dead_at_limit: bool  # a message to %RETRY% is dead at the greatest number of attempts; else only above it
    told_dead: bool  # … and says so: DELAY=-1
    half_when_retried: bool  # a retried message with a delay may still be a half message
    keeps_store_host: bool  # of a message that a consumer sends back
    long_retry_topics: bool  # up to 255 bytes, in records of version 2
    timers: bool  # TIMER_* go to the timer's topic
    inner_batches: bool
    property_crc: bool
    multi_dispatch_of_all: bool  # any queue may be named, not only %LMQ%; in any topic
    multi_dispatch_repeats: bool  # a queue named twice counts twice
    ops_in_batches: bool  # op messages collect offsets, each with a comma behind it
    queue_id_code: int  # what a queue id beyond the topic's is refused with


class HaRules(NamedTuple):
    """What an acknowledgement means: CommitLog.submitReplicaRequest, asyncPutMessage, calcNeedAckNums.

    Where one line is the safer one and the wire cannot tell, ours does that for either, and there is no rule for it: a
    slave gives up a silent master (5.x), reports at once, counts once whatever connections it has, and is believed only
    what it was sent.
    """

    version: str  # whose rules these are
    gap_key: str  # its name for how far behind a slave may be and still counts
    own_replicas: int  # its inSyncReplicas on a SYNC_MASTER when the file does not say, the master counted
    waits_for_several: bool  # inSyncReplicas is known; else it is content with one slave
    refuses_without_slave: bool  # isSlaveOK is false: SLAVE_NOT_AVAILABLE at once; else it waits for slaveTimeout
    checks_before_append: bool  # enableSlaveActingMaster: too few in sync, and the message is not stored at all


class QueueRules(NamedTuple):
    """Records into consume queues, while a broker runs and while it loads a store."""

    dispatches_system_topics: bool  # multi-dispatch of records of %RETRY%, rmq_sys_ and SCHEDULE_TOPIC_XXXX, too
    dispatches_slashed_names: bool  # multi-dispatch to queues with a slash in their name, too
    reads_version_2: bool  # records with topics of up to 255 bytes; else the log ends there
    log_files_checked: int | None  # of the newest, after an ordinary stop; None: from where the queues end
    dispatches_after_stop: bool  # records that the queues lack, after an ordinary stop, too
    knows_delays_early: bool  # its table of delay levels is read before recovery dispatches
    minimum_at_end: bool  # a queue whose records are all gone begins at its end, else it stays where it began
    minimum_from_known: bool  # the search for a queue's first entry begins at the minimum that is known
    finds_by_entries: bool  # an offset by time is the first message from then on; else its file's own time says


class TableRules(NamedTuple):
    """config/*.json, and the same tables on the wire."""

    state_versions: bool  # a DataVersion has a stateVersion; so have consumerOffset.json and delayOffset.json
    topic_attributes: bool
    group_policies: bool  # a group's attributes, groupRetryPolicy, consumeTimeoutMinute, ... and forbiddenTable
    topics_of_groups: bool  # consumerOffset.json lists the topics of every group
    static_topics: bool  # a table of topics is followed by those of their mappings
    transaction_topics: bool  # a broker's own topics and group of transactions, revival and membership stand in them
    timer_topic: bool  # and rmq_sys_wheel_timer, where there is a timer wheel
    order_is_taken_back: bool  # a topic that the name server lists no more loses its order


class RemotingRules(NamedTuple):
    """What every request and answer says."""

    version: int  # of RocketMQ, in every header
    version_name: str
    answers_in_json: bool  # whatever form the request has; else in the request's
    java_package: str  # of the headers that Java names where it throws


class BrokerRules(NamedTuple):
    """A broker's answers to administrators and slaves, and what it asks itself as a slave."""

    wrong_topic_code: int  # a topic's name is refused with
    wrong_number_is_thrown: bool  # a topic without a number of queues ends in an exception; else in a refusal
    slaves_take_changes: bool  # until their master's tables replace them
    checks_names_to_delete: bool  # a topic to be deleted must have a name that one could make
    topic_is_dereferenced: bool  # a topic without a name ends in an exception before anybody looks at it
    tells_hash_code: bool  # an exception for a key that is null says which call it was
    empty_group_is_thrown: bool  # a group without configuration ends in an exception; else in SUCCESS
    same_topic_is_kept: bool  # updating a topic to what it is changes no version
    forget_offsets_field: str  # of the request that deletes a group
    heartbeat_is_answered: bool  # with what the broker supports
    serves_modes_and_timers: bool  # 402 modes of consuming, 60 and 61 the timer wheel, 907 replication
    slave_period_ms: int  # between two rounds of a slave's questions
    pools: tuple[tuple[str, int], ...]  # thread pools with figures, and how much they hold
    transferred_tps_key: str
    timer_figures: bool  # brokerActive and the timer wheel's, too


class NamingRules(NamedTuple):
    """A name server, and a broker's registration there."""

    faq: str  # behind the remark that a topic has no route
    addresses_have_clusters: bool  # one address in two clusters is two brokers
    concurrent_maps: bool  # tables are ConcurrentHashMaps: they list their keys in another order
    topic_list_capacity: int  # of the set that a list of topics is made of
    fences_old_masters: bool  # an address that holds an id with a newer state keeps it; one topic is no first word
    prime_slaves: bool  # the first slave of a group without master registers its topics, write permission taken away
    adds_missing_topics: bool  # from a registration whose version is known
    unregisters_by_id: bool  # else by address
    requires_place: bool  # a heartbeat without cluster and address ends in an exception
    changed_is_sign_of_life: bool  # so is a QUERY_DATA_VERSION that finds another version
    heartbeats: bool  # BROKER_HEARTBEAT, the members of a group, topics registered by hand
    acting_masters: bool  # a registration says enableActingMaster, a route does, and its zone


class RetentionRules(NamedTuple):
    """DefaultMessageStore.CleanCommitLogService."""

    clamps_levels: bool  # diskSpaceCleanForciblyRatio and diskSpaceWarningLevelRatio, too
    forcibly_is_enough: bool  # it cleans as soon as it may clean at once; else only above diskMaxUsedSpaceRatio


class Marks(NamedTuple):
    """What only brokers of the line, and later ones, leave in a store."""

    names: tuple[str, ...] = ()
    table_text: bytes = b""  # in topics.json
    checkpoint_offsets: bool = False  # masterFlushedOffset, confirmPhyOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One release line of RocketMQ. `compat` is its name in the configuration."""

    compat: str
    put: PutRules
    ha: HaRules
    queues: QueueRules
    tables: TableRules
    remoting: RemotingRules
    broker: BrokerRules
    naming: NamingRules
    retention: RetentionRules
    marks: Marks


_4_9 = Line(
    compat="4.9",
    put=PutRules(
        map_capacity=16, trailing_separator=False, adds_region=False, adds_unique_key=False, adds_transaction_id=False,
        removes_wait=True, removes_pop_check=False, stores_empty_bodies=True, measures_text=True, dead_at_limit=True,
        told_dead=False, half_when_retried=True, keeps_store_host=True, long_retry_topics=False, timers=False,
        inner_batches=False, property_crc=False, multi_dispatch_of_all=True, multi_dispatch_repeats=False,
        ops_in_batches=False, queue_id_code=1,
    ),
    ha=HaRules(
        version="4.9.7", gap_key="haSlaveFallbehindMax", own_replicas=2, waits_for_several=False,
        refuses_without_slave=True, checks_before_append=False,
    ),
    queues=QueueRules(
        dispatches_system_topics=True, dispatches_slashed_names=True, reads_version_2=False, log_files_checked=3,
        dispatches_after_stop=False, knows_delays_early=False, minimum_at_end=False, minimum_from_known=False,
        finds_by_entries=False,
    ),
    tables=TableRules(
        state_versions=False, topic_attributes=False, group_policies=False, topics_of_groups=False,
        static_topics=False, transaction_topics=False, timer_topic=False, order_is_taken_back=True,
    ),
    remoting=RemotingRules(
        version=407, version_name="V4_9_7", answers_in_json=False, java_package="org.apache.rocketmq.common.protocol"
    ),
    broker=BrokerRules(
        wrong_topic_code=1, wrong_number_is_thrown=True, slaves_take_changes=False, checks_names_to_delete=True,
        topic_is_dereferenced=False, tells_hash_code=False, empty_group_is_thrown=False, same_topic_is_kept=False,
        forget_offsets_field="removeOffset", heartbeat_is_answered=False, serves_modes_and_timers=False,
        slave_period_ms=10_000, pools=(("send", 10_000), ("pull", 100_000), ("query", 20_000)),
        transferred_tps_key="getTransferedTps", timer_figures=False,
    ),
    naming=NamingRules(
        faq="\nSee http://rocketmq.apache.org/docs/faq/ for further details.",
        addresses_have_clusters=False, concurrent_maps=False, topic_list_capacity=16, fences_old_masters=False,
        prime_slaves=False, adds_missing_topics=False, unregisters_by_id=True, requires_place=False,
        changed_is_sign_of_life=False, heartbeats=False, acting_masters=False,
    ),
    retention=RetentionRules(clamps_levels=False, forcibly_is_enough=False),
    marks=Marks(),
)  # fmt: skip
_5 = Line(
    compat="5",
    put=PutRules(
        map_capacity=128, trailing_separator=True, adds_region=True, adds_unique_key=True, adds_transaction_id=True,
        removes_wait=False, removes_pop_check=True, stores_empty_bodies=False, measures_text=False,
        dead_at_limit=False, told_dead=True, half_when_retried=False, keeps_store_host=False, long_retry_topics=True,
        timers=True, inner_batches=True, property_crc=True, multi_dispatch_of_all=False, multi_dispatch_repeats=True,
        ops_in_batches=True, queue_id_code=29,
    ),
    ha=HaRules(
        version="5.3.3", gap_key="haMaxGapNotInSync", own_replicas=1, waits_for_several=True,
        refuses_without_slave=False, checks_before_append=True,
    ),
    queues=QueueRules(
        dispatches_system_topics=False, dispatches_slashed_names=False, reads_version_2=True, log_files_checked=None,
        dispatches_after_stop=True, knows_delays_early=True, minimum_at_end=True, minimum_from_known=True,
        finds_by_entries=True,
    ),
    tables=TableRules(
        state_versions=True, topic_attributes=True, group_policies=True, topics_of_groups=True, static_topics=True,
        transaction_topics=True, timer_topic=True, order_is_taken_back=False,
    ),
    remoting=RemotingRules(
        version=479, version_name="V5_3_3", answers_in_json=True, java_package="org.apache.rocketmq.remoting.protocol"
    ),
    broker=BrokerRules(
        wrong_topic_code=29, wrong_number_is_thrown=False, slaves_take_changes=True, checks_names_to_delete=False,
        topic_is_dereferenced=True, tells_hash_code=True, empty_group_is_thrown=True, same_topic_is_kept=True,
        forget_offsets_field="cleanOffset", heartbeat_is_answered=True, serves_modes_and_timers=True,
        slave_period_ms=60_000,
        pools=(("send", 10_000), ("pull", 100_000), ("query", 20_000), ("litePull", 100_000), ("ack", 100_000)),
        transferred_tps_key="getTransferredTps", timer_figures=True,
    ),
    naming=NamingRules(
        faq="\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
        addresses_have_clusters=True, concurrent_maps=True, topic_list_capacity=8, fences_old_masters=True,
        prime_slaves=True, adds_missing_topics=True, unregisters_by_id=False, requires_place=True,
        changed_is_sign_of_life=True, heartbeats=True, acting_masters=True,
    ),
    retention=RetentionRules(clamps_levels=True, forcibly_is_enough=True),
    marks=Marks(
        (names.ABORT_BACKUP, names.COMPACTION, names.TIMER_WHEEL, names.TIMER_LOG, names.BATCH_QUEUES),
        table_text=b"stateVersion", checkpoint_offsets=True,
    ),
)  # fmt: skip
LINES = {line.compat: line for line in (_4_9, _5)}  # oldest first
OLDEST, NEWEST = next(iter(LINES)), next(reversed(LINES))
OF_BROKERS, OF_NAME_SERVERS = _4_9.compat, _5.compat  # where nothing is said: both lines' brokers ask a name server


def line_of(compat: object) -> Line:
    """The line that a setting `compat` names."""
    return LINES[str(compat)]
