"""Where RocketMQ 4.9 and 5.x differ: one field a rule, with its value in each release line.

Implements: the differences between 4.9.7 and 5.3.3 (spec: store-formats, ha-protocol, remoting)
The setting `compat` names one of `LINES`; `line_of` is the only place that takes the name. Everybody else asks a field
for what it says, never for a version: a third line is one more value of each. Grouped by what the rules are about. A
flag is true where brokers of the line do what its comment says.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar, cast

from store import names

Value = TypeVar("Value")
Rules = TypeVar("Rules", bound=tuple[Any, ...])


def of(oldest: Value, newest: Value) -> Value:
    """A field's values, one for each line, which `_line` chooses from."""
    return cast(Value, (oldest, newest))


UNTIL_4_9, SINCE_5 = of(True, False), of(False, True)  # flags


class PutRules(NamedTuple):
    """A message before it is stored: SendMessageProcessor, MessageDecoder, CommitLog, HookUtils, MultiDispatch."""

    map_capacity: int = of(16, 128)  # of the HashMap that a property string is parsed into
    trailing_separator: bool = SINCE_5  # behind the last property
    adds_region: bool = SINCE_5  # MSG_REGION and TRACE_ON, to batches too
    adds_unique_key: bool = SINCE_5  # UNIQ_KEY where the client gave none, but not to batches
    adds_transaction_id: bool = SINCE_5  # __transactionId__ to half messages that have a UNIQ_KEY
    removes_wait: bool = UNTIL_4_9  # from single messages, unless they are written out once more (delay, half)
    removes_pop_check: bool = SINCE_5  # POP_CK
    stores_empty_bodies: bool = UNTIL_4_9
    measures_text: bool = UNTIL_4_9  # limits count UTF-16 units of the text, then bytes of the property string
    # a message to %RETRY% is dead at the greatest number of attempts; else only above it
    dead_at_limit: bool = UNTIL_4_9
    told_dead: bool = SINCE_5  # … and says so: DELAY=-1
    half_when_retried: bool = UNTIL_4_9  # a retried message with a delay may still be a half message
    keeps_store_host: bool = UNTIL_4_9  # of a message that a consumer sends back
    long_retry_topics: bool = SINCE_5  # up to 255 bytes, in records of version 2
    timers: bool = SINCE_5  # TIMER_* go to the timer's topic
    inner_batches: bool = SINCE_5
    property_crc: bool = SINCE_5
    multi_dispatch_of_all: bool = UNTIL_4_9  # any queue may be named, not only %LMQ%; in any topic
    multi_dispatch_repeats: bool = SINCE_5  # a queue named twice counts twice
    ops_in_batches: bool = SINCE_5  # op messages collect offsets, each with a comma behind it
    queue_id_code: int = of(1, 29)  # what a queue id beyond the topic's is refused with
    throws_large_batches: bool = SINCE_5  # at one above maxMessageSize; else it is illegal
    rejects_late_ends: bool = SINCE_5  # of transactions, after the half's own time until it is checked
    retries_orderly_to_dead: bool = SINCE_5  # what a group that locks queues sends to its retry topic is dead at once
    # of the status that no file could be made
    file_failure_name: str = of("CREATE_MAPEDFILE_FAILED", "CREATE_MAPPED_FILE_FAILED")


class HaRules(NamedTuple):
    """The rules of acknowledgements: CommitLog.submitReplicaRequest, asyncPutMessage, calcNeedAckNums.

    Where one line is the safer one and the wire cannot tell, ours does that for either, and there is no rule for it: a
    slave gives up a silent master (5.x), reports at once, counts once whatever connections it has, and is believed only
    what it was sent.
    """

    version: str = of("4.9.7", "5.3.3")  # whose rules these are
    # its name for how far behind a slave may be and still counts
    gap_key: str = of("haSlaveFallbehindMax", "haMaxGapNotInSync")
    own_replicas: int = of(2, 1)  # its inSyncReplicas on a SYNC_MASTER when the file does not say, the master counted
    waits_for_several: bool = SINCE_5  # inSyncReplicas is known; else it is content with one slave
    # isSlaveOK is false: SLAVE_NOT_AVAILABLE at once; else it waits for slaveTimeout
    refuses_without_slave: bool = UNTIL_4_9
    # enableSlaveActingMaster: too few in sync, and the message is not stored at all
    checks_before_append: bool = SINCE_5


class QueueRules(NamedTuple):
    """Records into consume queues, while a broker runs and while it loads a store."""

    # multi-dispatch of records of %RETRY%, rmq_sys_ and SCHEDULE_TOPIC_XXXX, too
    dispatches_system_topics: bool = UNTIL_4_9
    dispatches_slashed_names: bool = UNTIL_4_9  # multi-dispatch to queues with a slash in their name, too
    reads_version_2: bool = SINCE_5  # records with topics of up to 255 bytes; else the log ends there
    # of the newest, after an ordinary stop; None: from where the queues end
    log_files_checked: int | None = of(3, None)
    dispatches_after_stop: bool = SINCE_5  # records that the queues lack, after an ordinary stop, too
    knows_delays_early: bool = SINCE_5  # its table of delay levels is read before recovery dispatches
    minimum_at_end: bool = SINCE_5  # a queue whose records are all gone begins at its end, else it stays where it began
    minimum_from_known: bool = SINCE_5  # the search for a queue's first entry begins at the minimum that is known
    # an offset by time is the first message from then on; else its file's own time says
    finds_by_entries: bool = SINCE_5


class TableRules(NamedTuple):
    """config/*.json, and the same tables on the wire."""

    state_versions: bool = SINCE_5  # a DataVersion has a stateVersion; so have consumerOffset.json and delayOffset.json
    topic_attributes: bool = SINCE_5
    # a group's attributes, groupRetryPolicy, consumeTimeoutMinute, ... and forbiddenTable
    group_policies: bool = SINCE_5
    topics_of_groups: bool = SINCE_5  # consumerOffset.json lists the topics of every group
    static_topics: bool = SINCE_5  # a table of topics is followed by those of their mappings
    # a broker's own topics and group of transactions, revival and membership stand in them
    transaction_topics: bool = SINCE_5
    timer_topic: bool = SINCE_5  # and rmq_sys_wheel_timer, where there is a timer wheel
    order_is_taken_back: bool = UNTIL_4_9  # a topic that the name server lists no more loses its order


class RemotingRules(NamedTuple):
    """Fields that every request and answer has."""

    version: int = of(407, 479)  # of RocketMQ, in every header
    version_name: str = of("V4_9_7", "V5_3_3")
    answers_in_json: bool = SINCE_5  # whatever form the request has; else in the request's
    # of the headers that Java names where it throws
    java_package: str = of("org.apache.rocketmq.common.protocol", "org.apache.rocketmq.remoting.protocol")
    # of the HashMap of an answer's fields where the first is added before the header's own
    added_fields_capacity: int = of(16, 256)


class BrokerRules(NamedTuple):
    """A broker's answers to administrators and slaves, and what it asks itself as a slave."""

    wrong_topic_code: int = of(1, 29)  # a topic's name is refused with
    # a topic without a number of queues ends in an exception; else in a refusal
    wrong_number_is_thrown: bool = UNTIL_4_9
    slaves_take_changes: bool = SINCE_5  # until their master's tables replace them
    checks_names_to_delete: bool = UNTIL_4_9  # a topic to be deleted must have a name that one could make
    topic_is_dereferenced: bool = SINCE_5  # a topic without a name ends in an exception before anybody looks at it
    tells_hash_code: bool = SINCE_5  # an exception for a key that is null says which call it was
    empty_group_is_thrown: bool = SINCE_5  # a group without configuration ends in an exception; else in SUCCESS
    same_topic_is_kept: bool = SINCE_5  # updating a topic to what it is changes no version
    forget_offsets_field: str = of("removeOffset", "cleanOffset")  # of the request that deletes a group
    heartbeat_is_answered: bool = SINCE_5  # with what the broker supports
    serves_modes_and_timers: bool = SINCE_5  # 402 modes of consuming, 60 and 61 the timer wheel, 907 replication
    slave_period_ms: int = of(10_000, 60_000)  # between two rounds of a slave's questions
    slaves_reject_sends: bool = SINCE_5  # before they look at one; else they say that they do not serve it
    # thread pools with figures, and how much they hold
    pools: tuple[tuple[str, int], ...] = of(
        (("send", 10_000), ("pull", 100_000), ("query", 20_000)),
        (("send", 10_000), ("pull", 100_000), ("query", 20_000), ("litePull", 100_000), ("ack", 100_000)),
    )
    transferred_tps_key: str = of("getTransferedTps", "getTransferredTps")
    timer_figures: bool = SINCE_5  # brokerActive and the timer wheel's, too
    transaction_check_interval_ms: int = of(60_000, 30_000)  # transactionCheckInterval, where nothing is said
    # a question to a producer about a half message (39) names its topic and the broker
    checks_name_broker: bool = SINCE_5


class AdminRules(NamedTuple):
    """The rules of what administrators see of queues, groups and clients."""

    # 18 and 225 lists of topics and groups, 343 and 345 of a group, 351 and 352 one of each
    serves_lists: bool = SINCE_5
    # tables by queue list them in a ConcurrentHashMap's order; else a HashMap's
    stats_tables_are_concurrent: bool = SINCE_5
    tells_put_tps: bool = SINCE_5  # of a topic
    tells_pull_offsets: bool = SINCE_5
    tells_read_queues: bool = SINCE_5  # of a topic that has more of them than queues to write to, too
    expires_reports: bool = SINCE_5  # an administrator's request that waits too long for a thread is refused
    takes_topic_list: bool = SINCE_5  # the progress of a group in several topics at once
    compares_offsets: bool = SINCE_5  # 308 with the group that it names; else it looks for that under a wrong name
    directs_with_flags: bool = SINCE_5  # a message to be consumed directly comes with the flags of its topic and group
    resets_name_queues: bool = SINCE_5  # a request to a consumer to reset its offsets names the queue; -1: all queues
    reset_topic_code: int = of(1, 17)  # with which offsets of a topic that is not there are not reset
    # not among the system topics that are listed
    unlisted_topics: frozenset[str] = of(frozenset({"CHECKPOINT_TOPIC"}), frozenset())


class GroupRules(NamedTuple):
    """Consumers and their offsets: ClientManageProcessor, ConsumerManageProcessor, ConsumerOffsetManager."""

    silent_broadcasts: bool = SINCE_5  # a broadcasting group's members hear of no change
    registers_without_group: bool = UNTIL_4_9  # consumers of a group that may not be made are members all the same
    checks_group_names: bool = SINCE_5  # only what could be a topic's name is made a group by itself
    retry_topics_are_ordered: bool = SINCE_5  # a group with an ordered topic has an ordered retry topic
    # a heartbeat may say only that nothing changed, and hears whether somebody said otherwise
    fingerprints: bool = SINCE_5
    # a group that is new in a queue begins at 0 where the page cache has its first message
    zero_is_cached: bool = SINCE_5
    checks_commits: bool = SINCE_5  # an offset of an unknown group or topic is refused
    offset_version_step: int = of(0, 500)  # so many commits are a new version of the offsets; 0: they have none
    least_offset_has_remark: bool = SINCE_5  # an empty one
    locks_by_quorum: bool = SINCE_5  # lockInStrictMode
    resets_by_itself: bool = SINCE_5  # useServerSideResetOffset: an order to set offsets back asks no consumer
    forgets_offsets_of_topics: bool = SINCE_5  # a deleted topic's offsets go with it


class PullRules(NamedTuple):
    """The rules of answers to pulls: PullMessageProcessor, DefaultMessageStore.getMessage."""

    counts_refused: bool = UNTIL_4_9  # the message that found no room in an answer says how far behind its reader is
    queue_id_code: int = of(1, 29)  # what a queue id beyond the topic's is refused with
    forbidden_types: bool = SINCE_5  # a refusal says what forbids it; a group may be forbidden a topic
    sys_flags: bool = SINCE_5  # answers have the topic's and the group's
    slaves_refuse: bool = SINCE_5  # pulls, without slaveReadEnable
    moved_events: bool = UNTIL_4_9  # an offset that was corrected is a message of OFFSET_MOVED_EVENT
    slaves_commit: bool = SINCE_5  # the offsets that pulls carry


class NamingRules(NamedTuple):
    """A name server, and a broker's registration there."""

    # behind the remark that a topic has no route, and others of brokers
    faq: str = of(
        "\nSee http://rocketmq.apache.org/docs/faq/ for further details.",
        "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
    )
    addresses_have_clusters: bool = SINCE_5  # one address in two clusters is two brokers
    concurrent_maps: bool = SINCE_5  # tables are ConcurrentHashMaps: they list their keys in another order
    topic_list_capacity: int = of(16, 8)  # of the set that a list of topics is made of
    # an address that holds an id with a newer state keeps it; one topic is no first word
    fences_old_masters: bool = SINCE_5
    # the first slave of a group without master registers its topics, write permission taken away
    prime_slaves: bool = SINCE_5
    adds_missing_topics: bool = SINCE_5  # from a registration whose version is known
    unregisters_by_id: bool = UNTIL_4_9  # else by address
    requires_place: bool = SINCE_5  # a heartbeat without cluster and address ends in an exception
    changed_is_sign_of_life: bool = SINCE_5  # so is a QUERY_DATA_VERSION that finds another version
    heartbeats: bool = SINCE_5  # BROKER_HEARTBEAT, the members of a group, topics registered by hand
    acting_masters: bool = SINCE_5  # a registration says enableActingMaster, a route does, and its zone
    # that no request may change, and what is said to it
    fixed_settings: frozenset[str] = of(
        frozenset({"kvConfigPath", "configStorePath"}),
        frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}),
    )
    fixed_settings_remark: str = of("Can not update config path", "Can not update config in black list.")


class RetentionRules(NamedTuple):
    """The rules of retention, like DefaultMessageStore.CleanCommitLogService."""

    clamps_levels: bool = SINCE_5  # diskSpaceCleanForciblyRatio and diskSpaceWarningLevelRatio, too
    # it cleans as soon as it may clean at once; else only above diskMaxUsedSpaceRatio
    forcibly_is_enough: bool = SINCE_5


class Marks(NamedTuple):
    """The marks that only brokers of the line, and later ones, leave in a store."""

    names: tuple[str, ...] = of(
        (), (names.ABORT_BACKUP, names.COMPACTION, names.TIMER_WHEEL, names.TIMER_LOG, names.BATCH_QUEUES)
    )
    table_text: bytes = of(b"", b"stateVersion")  # in topics.json
    checkpoint_offsets: bool = SINCE_5  # masterFlushedOffset, confirmPhyOffset


class Line(NamedTuple):
    """One release line of RocketMQ. `compat` is its name in the configuration."""

    compat: str
    put: PutRules
    ha: HaRules
    queues: QueueRules
    tables: TableRules
    remoting: RemotingRules
    broker: BrokerRules
    admin: AdminRules
    groups: GroupRules
    pull: PullRules
    naming: NamingRules
    retention: RetentionRules
    marks: Marks


def _line(number: int, compat: str) -> Line:
    def rules(kind: type[Rules]) -> Rules:
        fields: dict[str, tuple[Any, ...]] = kind._field_defaults  # type: ignore[attr-defined]
        return kind(*(values[number] for values in fields.values()))

    return Line(
        compat,
        rules(PutRules),
        rules(HaRules),
        rules(QueueRules),
        rules(TableRules),
        rules(RemotingRules),
        rules(BrokerRules),
        rules(AdminRules),
        rules(GroupRules),
        rules(PullRules),
        rules(NamingRules),
        rules(RetentionRules),
        rules(Marks),
    )


_4_9, _5 = _line(0, "4.9"), _line(1, "5")

LINES = {line.compat: line for line in (_4_9, _5)}  # oldest first
OLDEST, NEWEST = next(iter(LINES)), next(reversed(LINES))
OF_BROKERS, OF_NAME_SERVERS = _4_9.compat, _5.compat  # where nothing is said: both lines' brokers ask a name server


def line_of(compat: object) -> Line:
    """The line that a setting `compat` names."""
    return LINES[str(compat)]
