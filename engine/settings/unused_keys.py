"""The keys that RocketMQ's brokers know and this broker does not use: whether one stops the start, and why.

Read from the setters of BrokerConfig, MessageStoreConfig (also of tiered storage), NettyServerConfig,
NettyClientConfig, AuthConfig and BrokerIdentity of 4.9.7, 5.3.3 and 5.5.0. keys.py has the keys that are used.
A key stops the start if the broker would be unsafe or another kind of broker without its effect, or would keep other
files. A key is warned about if its absence costs speed or detail, or if what it asks for is refused by name when a
client asks for it.
spec: configuration, sections 1 to 9
"""

from __future__ import annotations

from typing import NamedTuple

JAVA_NOTHING = ("", "null")  # no value, as exported settings write it


class Unused(NamedTuple):
    """One key: why it has no effect, and the value with which it asks for nothing (None: any value is only warned of).

    `harmless` is RocketMQ's default. Booleans are read as Java reads them: all but "true" is false.
    """

    why: str
    harmless: str | None = None

    def stops(self, value: str) -> bool:
        """Whether a start with this value is refused."""
        if self.harmless is None:
            return False
        text = value.strip()
        if self.harmless in ("true", "false"):
            return (text.lower() == "true") != (self.harmless == "true")
        return text not in JAVA_NOTHING and text.lower() != self.harmless.lower()


# why, and each key with the value that asks for nothing
_STOPPING = (
    ("this broker does not authenticate clients; leave the key out, and list the addresses of clients and "
     "administrators in remotingAllowList and adminAllowList",
     "aclEnable=false authenticationEnabled=false authorizationEnabled=false"),
    ("this broker serves every consumer that remotingAllowList allows; leave the key out",
     "rejectPullConsumerEnable=false"),
    ("an administrator may change only the settings that updateBrokerConfig lists; leave the key out, and list the "
     "addresses of administrators in adminAllowList", "configBlackList=configBlackList;brokerConfigPath"),
    ("this broker keeps consume queues, index, transactions and tables in RocketMQ's files, not in RocksDB; leave the "
     "key out",
     "storeType=default rocksdbCQDoubleWriteEnable=false transRocksDBEnable=false timerRocksDBEnable=false "
     "indexRocksDBEnable=false combineCQPreferCQType=default combineAssignOffsetCQType=default "
     "combineCQUseRocksdbForLmq=false useSingleRocksDBForAllConfigs=false configManagerVersion=v1 "
     "indexFileWriteEnable=true indexFileReadEnable=true transWriteOriginTransHalfEnable=true"),
    ("this broker has no store plug-ins and no tiered storage; leave the key out",
     "messageStorePlugIn="),
    ("this broker reads its log only from storePathCommitLog; move the segments there and leave the key out",
     "readOnlyCommitLogStorePaths="),
    ("a slave of this broker takes no messages; leave the key out", "duplicationEnable=false"),
    ("each broker is its own process; start each broker separately and leave the key out",
     "inBrokerContainer=false"),
    ("this broker has no DLedger; leave the key out, and set the master with brokerRole",
     "enableDLegerCommitLog=false"),
    ("this broker has no controller; leave the key out, and set the master with brokerRole",
     "enableControllerMode=false"),
    ("this broker has no controller; leave the key out, and set in inSyncReplicas how many replicas a put waits for",
     "allAckInSyncStateSet=false asyncLearner=false"),
    ("this broker does not pass messages to other brokers; leave the key out", "enableRemoteEscape=false"),
    ("this broker connects to name servers and to its master directly; leave the key out", "socksProxyConfig={}"),
)  # fmt: skip

_WARNED = (
    ("without effect: this broker has no authentication and no ACL",
     "aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond authConfigPath authenticationMetadataProvider "
     "authenticationProvider authenticationStrategy authenticationWhitelist authorizationMetadataProvider "
     "authorizationProvider authorizationStrategy authorizationWhitelist clusterName configName "
     "initAuthenticationUser innerClientAuthenticationCredentials migrateAuthFromV1Enabled rocketmq-acl "
     "statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum "
     "statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum userCacheExpiredSecond "
     "userCacheMaxNum userCacheRefreshSecond"),
    ("without effect: this broker has no thread pools; it limits waiting requests in its own way",
     "ackMessageThreadPoolNums ackThreadPoolQueueCapacity adminBrokerThreadPoolNums "
     "adminBrokerThreadPoolQueueCapacity asyncSendEnable clientManageThreadPoolNums "
     "clientManagerThreadPoolQueueCapacity consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity "
     "endTransactionPoolQueueCapacity endTransactionThreadPoolNums heartbeatThreadPoolNums "
     "heartbeatThreadPoolQueueCapacity litePullMessageEnable litePullMessageThreadPoolNums "
     "litePullThreadPoolQueueCapacity loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity "
     "maxAsyncPutMessageRequests processReplyMessageThreadPoolNums pullMessageThreadPoolNums "
     "putMessageFutureThreadPoolNums putMessageTimeout putThreadPoolQueueCapacity queryMessageThreadPoolNums "
     "queryThreadPoolQueueCapacity recoverConcurrently recoverThreadPoolNums replyThreadPoolQueueCapacity "
     "sendMessageThreadPoolNums transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads "
     "transactionCheckRocksdbQueueCapacity waitTimeMillsInAckQueue waitTimeMillsInLitePullQueue"),
    ("without effect: it tunes Netty, which this broker does not use",
     "channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads "
     "clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue "
     "clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads "
     "connectTimeoutMillis disableCallbackExecutor disableNettyWorkerGroup enableFastChannelEventProcess "
     "enableNetWorkFlowControl enableReconnectForGoAway enableShutdownGracefully maxReconnectIntervalTimeSeconds "
     "scanAvailableNameSrv serverAsyncSemaphoreValue serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds "
     "serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable "
     "serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads "
     "shutdownWaitTimeSeconds transferMsgByHeap useEpollNativeSelector writeBufferHighWaterMark "
     "writeBufferLowWaterMark"),
    ("without effect: it tunes how Java writes, flushes, maps or locks; this broker writes into mapped segments",
     "batchDispatchRequestThreadPoolNums commitCommitLogLeastPages commitCommitLogThoroughInterval "
     "commitIntervalCommitLog debugLockEnable diskFallRecorded dispatchCqCacheNum dispatchCqThreads "
     "dispatchFromSenderThread enableAsyncReput enableBuildConsumeQueueConcurrently enableRunningFlagsInFlush "
     "enableScheduleAsyncDeliver fastFailIfNoBufferInStorePool flushLeastPagesWhenWarmMapedFile maxDelayTime "
     "maxMsgsNumBatch putConsumeQueueDataByFileChannel putMsgIndexHightWater readUnCommitted "
     "scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked sharedByteBufferNum "
     "spinLockCollisionRetreatOptimalDegree topicQueueLockNum transientStorePoolEnable transientStorePoolSize "
     "useABSLock useReentrantLockWhenPutMessage wakeCommitWhenPutMessage wakeFlushWhenPutMessage warmMapedFileEnable "
     "writeWithoutMmap"),
    ("without effect: it tunes how Java reads the log and its queues; the page cache does that here",
     "accessMessageInMemoryHotRatio cgColdReadThreshold cleanSwapedMapInterval coldCtrStrategyEnable "
     "coldDataFlowControlEnable coldDataScanEnable commitLogForceSwapMapInterval commitLogSwapMapInterval "
     "commitLogSwapMapReserveFileNum dataReadAheadEnable globalColdReadThreshold highSpeedMode "
     "logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum mappedFileSwapEnable "
     "maxConsumeQueueScan pullBatchMaxMessageCount sampleCountThreshold sampleSteps searchBcqByCacheEnable "
     "travelCqFileNumWhenGetMessage usePIDColdCtrStrategy"),
    ("without effect: this broker decides at each start how much of the log to check",
     "checkCommitLogOffsetOnRecover commitLogRecoverMaxNum correctLogicMinOffsetForceInterval "
     "correctLogicMinOffsetSleepInterval enableAcceleratedRecovery enableLogConsumeQueueRepeatedlyBuildWhenRecover "
     "forceVerifyPropCRC maxChecksumRange maxRecoveryCommitlogFiles recheckReputOffsetFromCq"),
    ("without effect: this broker has no RocksDB",
     "bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin combineCQEnableCheckSelf "
     "combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles enableRocksDBLog "
     "iteratorWhenUseRocksdbConsumeQueue maxRocksDBIndexQueryDays memTableFlushIntervalMs "
     "persistConsumerOffsetIncrementally realTimePersistRocksDBConfig rocksdbCompressionType "
     "rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec "
     "useSeparateStorePathForRocksdbCQ"),
    ("without effect: this broker has no tiered storage",
     "commitLogRollingInterval commitLogRollingMinimumSize objectStoreAccessKey objectStoreBucket "
     "objectStoreEndpoint objectStoreSecretKey readAheadCacheEnable readAheadCacheExpireDuration "
     "readAheadCacheSizeThresholdRate readAheadMessageCountThreshold readAheadMessageSizeThreshold "
     "recordGetMessageResult tieredBackendServiceProvider tieredMetadataServiceProvider tieredStorageLevel "
     "tieredStoreCommitLogMaxSize tieredStoreConsumeQueueMaxSize tieredStoreCrcCheckEnable "
     "tieredStoreDeleteFileEnable tieredStoreDeleteFileInterval tieredStoreFilePath tieredStoreFileReservedTime "
     "tieredStoreGroupCommit tieredStoreGroupCommitCount tieredStoreGroupCommitSize tieredStoreGroupCommitTimeout "
     "tieredStoreIndexFileMaxHashSlotNum tieredStoreIndexFileMaxIndexNum tieredStoreMaxGroupCommitCount "
     "tieredStoreMaxPendingLimit"),
    ("without effect: this broker does not compact topics, and refuses the attribute cleanup.policy=COMPACTION",
     "compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal compactionThreadNum "
     "enableCompaction maxOffsetMapSize"),
    ("without effect: this broker has no timer wheel, and refuses timer messages",
     "allowRecallWhenBrokerNotWriteable appendTopicForTimerDeleteKey mappedFileSizeTimerLog recallMessageEnable "
     "timerColdDataCheckIntervalMs timerCongestNumEachSlot timerEnableCheckMetrics timerEnableRetryUntilSuccess "
     "timerFlushIntervalMs timerGetMessageThreadNum timerInterceptDelayLevel timerMaxDelaySec "
     "timerMetricSmallThreshold timerPrecisionMs timerProgressLogIntervalMs timerPutMessageThreadNum "
     "timerRecallToTimeWheelEnable timerRecallToTimelineEnable timerReputServiceCorePoolSize "
     "timerReputServiceMaxPoolSize timerReputServiceQueueCapacity timerRocksDBPrecisionMs "
     "timerRocksDBRollIntervalHours timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBStopScan "
     "timerRocksDBTimeExpiredMaxTps timerRollWindowSlot timerSkipUnknownError timerStopEnqueue "
     "timerWheelSnapshotFlush timerWheelSnapshotIntervalMs"),
    ("without effect: this broker does not serve POP consumers, and refuses their requests",
     "appendAckAsync appendCkAsync clearRetryTopicWhenDeleteTopic defaultMessageRequestMode defaultPopShareQueueNum "
     "enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge "
     "enablePopLog enablePopMessageThreshold enablePopMetrics enableRetryTopicV2 enableSkipLongAwaitingAck "
     "initPopOffsetByCheckMsgInMem loadBalancePollNameServerInterval maxMessageFilterNumForNotification "
     "maxPopPollingSize popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut "
     "popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit popConsumerKVServiceLog "
     "popFromRetryProbability popFromRetryProbabilityForPriority popInflightMessageThreshold "
     "popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize popPollingSize "
     "popResponseReturnActualRetryTopic popReviveConcurrency popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead "
     "popReviveSkipIfGroupAbsent priorityOrderAsc retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval "
     "reviveMaxSlow reviveQueueNum reviveScanTime serverLoadBalancerEnable skipWhenCKRePutReachMaxTimes "
     "useMessageFilterForNotification useSeparateRetryQueue"),
    ("without effect: this broker has no lite topics of RocketMQ 5.5, and refuses their requests",
     "enableLiteEventMode enableLitePopLog liteEventCheckInterval liteEventFullDispatchDelayTime "
     "liteEventFullDispatchDelayTimeForWildcardGroup liteLagCountMetricsEnable liteLagLatencyCollectEnable "
     "liteLagLatencyMetricsEnable liteLagLatencyTopK liteSubscriptionCheckInterval liteSubscriptionCheckTimeoutMills "
     "liteTtlCheckInterval maxClientEventCount maxLiteSubscriptionCount minLiteTTl"),
    ("without effect: maxLmqConsumeQueueNum always limits the light queues", "enableLmqQuota"),
    ("without effect: this broker filters by tags, and refuses SQL92 filters",
     "bitMapLengthConsumeQueueExt enableCalcFilterBitMap enablePropertyFilter expectConsumerNumUseFilter "
     "filterDataCleanTimeSpan filterServerNums filterSupportRetry maxErrorRateOfBloomFilter maxFilterMessageSize"),
    ("without effect: a topic of this broker has one message type, a name of up to 127 characters, and never the name "
     "of a system topic",
     "autoMessageVersionOnTopicLen enableMixedMessageType maxTopicLength validateSystemTopicWhenUpdateTopic"),
    ("without effect: brokerRole sets the master; this broker has no DLedger and no controller",
     "brokerElectionPriority checkSyncStateSetPeriod controllerAddr controllerHeartBeatTimeoutMills dLegerGroup "
     "dLegerPeers dLegerSelfId enableBatchPush fetchControllerAddrByDnsLookup haMaxTimeSlaveNotCatchup "
     "maxSlaveResendLength preferredLeaderId storePathBrokerIdentity storePathDLedgerCommitLog storePathEpochFile "
     "syncControllerMetadataPeriod syncMasterFlushOffsetWhenStartup"),
    ("without effect: no Slipstream slave acts as master",
     "disappearTimeAfterStart forwardTimeout sendHeartbeatTimeoutMillis skipPreOnline syncBrokerMemberGroupPeriod "
     "syncBrokerMetadataPeriod"),
    ("without effect: this broker registers all its topics in one request",
     "brokerTopicEnable clusterTopicEnable compressedRegister enableCreateSysGroup enableSingleTopicRegister "
     "enableSplitMetadata enableSplitRegistration registerBrokerTimeoutMills "
     "splitMetadataSize splitRegistrationSize"),
    ("without effect: this broker stores its tables of clients and offsets in its own way",
     "broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond cleanOfflineBrokerInterval "
     "consumerOffsetUpdateVersionStep delayOffsetUpdateVersionStep enableBroadcastOffsetStore "
     "enableCleanExpiredOffset enableRegisterProducer flushConsumerOffsetHistoryInterval "
     "realTimeNotifyConsumerChange subscriptionExpiredTimeout useStaticSubscription"),
    ("without effect: this broker deletes files according to the usage of their own disk",
     "logicalDiskSpaceCleanForciblyThreshold maxBatchDeleteFilesNum replicasPerDiskPartition"),
    ("without effect: this broker counts and logs in its own way; see /metrics and logLevel",
     "accountStatsEnable accountStatsPrintZeroValues autoDeleteUnusedStats brokerConfigPath commercialBaseCount "
     "commercialBigCount commercialEnable commercialSizePerMsg commercialTimerCount commercialTransCount "
     "enableConnectionMetrics enableDetailStat enableLagAndDlqMetrics enableLmqStats enableMessageStoreMetrics "
     "enableRemotingMetrics enableRequestMetrics enableScheduleMessageStats enableStatsMetrics "
     "enableTransactionMetrics estimateAccumulation isolateLogEnable maxStatsIdleTimeInMinutes "
     "metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills "
     "metricsExportBatchMaxDataPoints metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta "
     "metricsLabel printChannelGroups printChannelGroupsMinNum rocketmqHome transactionMetricFlushInterval"),
    ("without effect: RocketMQ 4.9 and 5 have no setter of this name, although samples often use it",
     "abortFile checkTransactionMessageEnable ha.server.ip ha.server.port storeCheckpoint storePathConsumeQueue "
     "storePathIndex"),
)  # fmt: skip


def _table() -> dict[str, Unused]:
    table: dict[str, Unused] = {}
    for why, pairs in _STOPPING:
        for pair in pairs.split():
            name, _is, harmless = pair.partition("=")
            table[name] = Unused(why, harmless)
    for why, names in _WARNED:
        table |= {name: Unused(why) for name in names.split()}
    return table


UNUSED = _table()
