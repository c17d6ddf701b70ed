"""Where RocketMQ 4.9 and 5.x differ: one field a rule, one instance of `Line` a release line.

Implements: the differences between 4.9.7 and 5.3.3 (spec: store-formats, ha-protocol, remoting)
The setting `compat` names one of `LINES`; `line_of` is the only place that takes the name. Everybody else asks a field
for what it says, never for a version: a third line is one more instance. Grouped by what the rules are about. A flag is
true where brokers of the line do what its comment says.
"""

from __future__ import annotations

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
    throws_large_batches: bool  # at one above maxMessageSize; else it is illegal
    rejects_late_ends: bool  # of transactions, after the half's own time until it is checked
    retries_orderly_to_dead: bool  # what a group that locks queues sends to its retry topic is dead at once
    file_failure_name: str  # of the status that no file could be made


class HaRules(NamedTuple):
    """The rules of acknowledgements: CommitLog.submitReplicaRequest, asyncPutMessage, calcNeedAckNums.

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
    """Fields that every request and answer has."""

    version: int  # of RocketMQ, in every header
    version_name: str
    answers_in_json: bool  # whatever form the request has; else in the request's
    java_package: str  # of the headers that Java names where it throws
    added_fields_capacity: int  # of the HashMap of an answer's fields where the first is added before the header's own


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
    slaves_reject_sends: bool  # before they look at one; else they say that they do not serve it
    pools: tuple[tuple[str, int], ...]  # thread pools with figures, and how much they hold
    transferred_tps_key: str
    timer_figures: bool  # brokerActive and the timer wheel's, too
    transaction_check_interval_ms: int  # transactionCheckInterval, where nothing is said
    checks_name_broker: bool  # a question to a producer about a half message (39) names its topic and the broker


class AdminRules(NamedTuple):
    """The rules of what administrators see of queues, groups and clients."""

    serves_lists: bool  # 18 and 225 lists of topics and groups, 343 and 345 of a group, 351 and 352 one of each
    stats_tables_are_concurrent: bool  # tables by queue list them in a ConcurrentHashMap's order; else a HashMap's
    tells_put_tps: bool  # of a topic
    tells_pull_offsets: bool
    tells_read_queues: bool  # of a topic that has more of them than queues to write to, too
    expires_reports: bool  # an administrator's request that waits too long for a thread is refused
    takes_topic_list: bool  # the progress of a group in several topics at once
    compares_offsets: bool  # 308 with the group that it names; else it looks for that under a wrong name
    directs_with_flags: bool  # a message to be consumed directly comes with the flags of its topic and group
    resets_name_queues: bool  # a request to a consumer to reset its offsets names the queue; -1: all queues
    reset_topic_code: int  # with which offsets of a topic that is not there are not reset
    unlisted_topics: frozenset[str]  # not among the system topics that are listed


class GroupRules(NamedTuple):
    """Consumers and their offsets: ClientManageProcessor, ConsumerManageProcessor, ConsumerOffsetManager."""

    silent_broadcasts: bool  # a broadcasting group's members hear of no change
    registers_without_group: bool  # consumers of a group that may not be made are members all the same
    checks_group_names: bool  # only what could be a topic's name is made a group by itself
    retry_topics_are_ordered: bool  # a group with an ordered topic has an ordered retry topic
    fingerprints: bool  # a heartbeat may say only that nothing changed, and hears whether somebody said otherwise
    zero_is_cached: bool  # a group that is new in a queue begins at 0 where the page cache has its first message
    checks_commits: bool  # an offset of an unknown group or topic is refused
    offset_version_step: int  # so many commits are a new version of the offsets; 0: they have none
    least_offset_has_remark: bool  # an empty one
    locks_by_quorum: bool  # lockInStrictMode
    resets_by_itself: bool  # useServerSideResetOffset: an order to set offsets back asks no consumer
    forgets_offsets_of_topics: bool  # a deleted topic's offsets go with it


class PullRules(NamedTuple):
    """The rules of answers to pulls: PullMessageProcessor, DefaultMessageStore.getMessage."""

    counts_refused: bool  # the message that found no room in an answer says how far behind its reader is
    queue_id_code: int  # what a queue id beyond the topic's is refused with
    forbidden_types: bool  # a refusal says what forbids it; a group may be forbidden a topic
    sys_flags: bool  # answers have the topic's and the group's
    slaves_refuse: bool  # pulls, without slaveReadEnable
    moved_events: bool  # an offset that was corrected is a message of OFFSET_MOVED_EVENT
    slaves_commit: bool  # the offsets that pulls carry


class NamingRules(NamedTuple):
    """A name server, and a broker's registration there."""

    faq: str  # behind the remark that a topic has no route, and others of brokers
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
    fixed_settings: frozenset[str]  # that no request may change, and what is said to it
    fixed_settings_remark: str


class RetentionRules(NamedTuple):
    """The rules of retention, like DefaultMessageStore.CleanCommitLogService."""

    clamps_levels: bool  # diskSpaceCleanForciblyRatio and diskSpaceWarningLevelRatio, too
    forcibly_is_enough: bool  # it cleans as soon as it may clean at once; else only above diskMaxUsedSpaceRatio


class Marks(NamedTuple):
    """The marks that only brokers of the line, and later ones, leave in a store."""

    names: tuple[str, ...] = ()
    table_text: bytes = b""  # in topics.json
    checkpoint_offsets: bool = False  # masterFlushedOffset, confirmPhyOffset


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


_4_9 = Line(
    compat="4.9",
    put=PutRules(
        map_capacity=16,
        trailing_separator=False,
        adds_region=False,
        adds_unique_key=False,
        adds_transaction_id=False,
        removes_wait=True,
        removes_pop_check=False,
        stores_empty_bodies=True,
        measures_text=True,
        dead_at_limit=True,
        told_dead=False,
        half_when_retried=True,
        keeps_store_host=True,
        long_retry_topics=False,
        timers=False,
        inner_batches=False,
        property_crc=False,
        multi_dispatch_of_all=True,
        multi_dispatch_repeats=False,
        ops_in_batches=False,
        queue_id_code=1,
        throws_large_batches=False,
        rejects_late_ends=False,
        retries_orderly_to_dead=False,
        file_failure_name="CREATE_MAPEDFILE_FAILED",
    ),
    ha=HaRules(
        version="4.9.7",
        gap_key="haSlaveFallbehindMax",
        own_replicas=2,
        waits_for_several=False,
        refuses_without_slave=True,
        checks_before_append=False,
    ),
    queues=QueueRules(
        dispatches_system_topics=True,
        dispatches_slashed_names=True,
        reads_version_2=False,
        log_files_checked=3,
        dispatches_after_stop=False,
        knows_delays_early=False,
        minimum_at_end=False,
        minimum_from_known=False,
        finds_by_entries=False,
    ),
    tables=TableRules(
        state_versions=False,
        topic_attributes=False,
        group_policies=False,
        topics_of_groups=False,
        static_topics=False,
        transaction_topics=False,
        timer_topic=False,
        order_is_taken_back=True,
    ),
    remoting=RemotingRules(
        version=407,
        version_name="V4_9_7",
        answers_in_json=False,
        java_package="org.apache.rocketmq.common.protocol",
        added_fields_capacity=16,
    ),
    broker=BrokerRules(
        wrong_topic_code=1,
        wrong_number_is_thrown=True,
        slaves_take_changes=False,
        checks_names_to_delete=True,
        topic_is_dereferenced=False,
        tells_hash_code=False,
        empty_group_is_thrown=False,
        same_topic_is_kept=False,
        forget_offsets_field="removeOffset",
        heartbeat_is_answered=False,
        serves_modes_and_timers=False,
        slave_period_ms=10_000,
        slaves_reject_sends=False,
        pools=(("send", 10_000), ("pull", 100_000), ("query", 20_000)),
        transferred_tps_key="getTransferedTps",
        timer_figures=False,
        transaction_check_interval_ms=60_000,
        checks_name_broker=False,
    ),
    admin=AdminRules(
        serves_lists=False,
        stats_tables_are_concurrent=False,
        tells_put_tps=False,
        tells_pull_offsets=False,
        tells_read_queues=False,
        expires_reports=False,
        takes_topic_list=False,
        compares_offsets=False,
        directs_with_flags=False,
        resets_name_queues=False,
        reset_topic_code=1,
        unlisted_topics=frozenset({"CHECKPOINT_TOPIC"}),
    ),
    groups=GroupRules(
        silent_broadcasts=False,
        registers_without_group=True,
        checks_group_names=False,
        retry_topics_are_ordered=False,
        fingerprints=False,
        zero_is_cached=False,
        checks_commits=False,
        offset_version_step=0,
        least_offset_has_remark=False,
        locks_by_quorum=False,
        resets_by_itself=False,
        forgets_offsets_of_topics=False,
    ),
    pull=PullRules(
        counts_refused=True,
        queue_id_code=1,
        forbidden_types=False,
        sys_flags=False,
        slaves_refuse=False,
        moved_events=True,
        slaves_commit=False,
    ),
    naming=NamingRules(
        faq="\nSee http://rocketmq.apache.org/docs/faq/ for further details.",
        addresses_have_clusters=False,
        concurrent_maps=False,
        topic_list_capacity=16,
        fences_old_masters=False,
        prime_slaves=False,
        adds_missing_topics=False,
        unregisters_by_id=True,
        requires_place=False,
        changed_is_sign_of_life=False,
        heartbeats=False,
        acting_masters=False,
        fixed_settings=frozenset({"kvConfigPath", "configStorePath"}),
        fixed_settings_remark="Can not update config path",
    ),
    retention=RetentionRules(clamps_levels=False, forcibly_is_enough=False),
    marks=Marks(),
)
_5 = Line(
    compat="5",
    put=PutRules(
        map_capacity=128,
        trailing_separator=True,
        adds_region=True,
        adds_unique_key=True,
        adds_transaction_id=True,
        removes_wait=False,
        removes_pop_check=True,
        stores_empty_bodies=False,
        measures_text=False,
        dead_at_limit=False,
        told_dead=True,
        half_when_retried=False,
        keeps_store_host=False,
        long_retry_topics=True,
        timers=True,
        inner_batches=True,
        property_crc=True,
        multi_dispatch_of_all=False,
        multi_dispatch_repeats=True,
        ops_in_batches=True,
        queue_id_code=29,
        throws_large_batches=True,
        rejects_late_ends=True,
        retries_orderly_to_dead=True,
        file_failure_name="CREATE_MAPPED_FILE_FAILED",
    ),
    ha=HaRules(
        version="5.3.3",
        gap_key="haMaxGapNotInSync",
        own_replicas=1,
        waits_for_several=True,
        refuses_without_slave=False,
        checks_before_append=True,
    ),
    queues=QueueRules(
        dispatches_system_topics=False,
        dispatches_slashed_names=False,
        reads_version_2=True,
        log_files_checked=None,
        dispatches_after_stop=True,
        knows_delays_early=True,
        minimum_at_end=True,
        minimum_from_known=True,
        finds_by_entries=True,
    ),
    tables=TableRules(
        state_versions=True,
        topic_attributes=True,
        group_policies=True,
        topics_of_groups=True,
        static_topics=True,
        transaction_topics=True,
        timer_topic=True,
        order_is_taken_back=False,
    ),
    remoting=RemotingRules(
        version=479,
        version_name="V5_3_3",
        answers_in_json=True,
        java_package="org.apache.rocketmq.remoting.protocol",
        added_fields_capacity=256,
    ),
    broker=BrokerRules(
        wrong_topic_code=29,
        wrong_number_is_thrown=False,
        slaves_take_changes=True,
        checks_names_to_delete=False,
        topic_is_dereferenced=True,
        tells_hash_code=True,
        empty_group_is_thrown=True,
        same_topic_is_kept=True,
        forget_offsets_field="cleanOffset",
        heartbeat_is_answered=True,
        serves_modes_and_timers=True,
        slave_period_ms=60_000,
        slaves_reject_sends=True,
        pools=(("send", 10_000), ("pull", 100_000), ("query", 20_000), ("litePull", 100_000), ("ack", 100_000)),
        transferred_tps_key="getTransferredTps",
        timer_figures=True,
        transaction_check_interval_ms=30_000,
        checks_name_broker=True,
    ),
    admin=AdminRules(
        serves_lists=True,
        stats_tables_are_concurrent=True,
        tells_put_tps=True,
        tells_pull_offsets=True,
        tells_read_queues=True,
        expires_reports=True,
        takes_topic_list=True,
        compares_offsets=True,
        directs_with_flags=True,
        resets_name_queues=True,
        reset_topic_code=17,
        unlisted_topics=frozenset(),
    ),
    groups=GroupRules(
        silent_broadcasts=True,
        registers_without_group=False,
        checks_group_names=True,
        retry_topics_are_ordered=True,
        fingerprints=True,
        zero_is_cached=True,
        checks_commits=True,
        offset_version_step=500,
        least_offset_has_remark=True,
        locks_by_quorum=True,
        resets_by_itself=True,
        forgets_offsets_of_topics=True,
    ),
    pull=PullRules(
        counts_refused=False,
        queue_id_code=29,
        forbidden_types=True,
        sys_flags=True,
        slaves_refuse=True,
        moved_events=False,
        slaves_commit=True,
    ),
    naming=NamingRules(
        faq="\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
        addresses_have_clusters=True,
        concurrent_maps=True,
        topic_list_capacity=8,
        fences_old_masters=True,
        prime_slaves=True,
        adds_missing_topics=True,
        unregisters_by_id=False,
        requires_place=True,
        changed_is_sign_of_life=True,
        heartbeats=True,
        acting_masters=True,
        fixed_settings=frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}),
        fixed_settings_remark="Can not update config in black list.",
    ),
    retention=RetentionRules(clamps_levels=True, forcibly_is_enough=True),
    marks=Marks(
        (names.ABORT_BACKUP, names.COMPACTION, names.TIMER_WHEEL, names.TIMER_LOG, names.BATCH_QUEUES),
        table_text=b"stateVersion",
        checkpoint_offsets=True,
    ),
)
LINES = {line.compat: line for line in (_4_9, _5)}  # oldest first
OLDEST, NEWEST = next(iter(LINES)), next(reversed(LINES))
OF_BROKERS, OF_NAME_SERVERS = _4_9.compat, _5.compat  # where nothing is said: both lines' brokers ask a name server


def line_of(compat: object) -> Line:
    """The line that a setting `compat` names."""
    return LINES[str(compat)]
