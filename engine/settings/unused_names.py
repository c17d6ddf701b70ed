"""Names of the keys that RocketMQ's broker knows and this broker does not use: accepted, each with a warning.

Read from the setters of BrokerConfig, MessageStoreConfig, NettyServerConfig, NettyClientConfig, AuthConfig and
BrokerIdentity, 4.9.7, 5.3.3 and what 5.x added since (8fc57f1468). The keys that we do use stand in keys.py.
spec: configuration, sections 1 to 9
"""

from __future__ import annotations

ROCKETMQ_KEYS = frozenset(
    """
    accessMessageInMemoryMaxRatio aclEnable adminBrokerThreadPoolNums autoCreateSubscriptionGroup
    autoDeleteUnusedStats bitMapLengthConsumeQueueExt brokerFastFailureEnable
    brokerTopicEnable channelNotActiveInterval
    clientAsyncSemaphoreValue clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds
    clientCloseSocketIfTimeout clientManagerThreadPoolQueueCapacity clientManageThreadPoolNums
    clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
    clientWorkerThreads clusterTopicEnable commercialBaseCount commercialBigCount commercialEnable
    commercialTimerCount commercialTransCount commitCommitLogLeastPages commitCommitLogThoroughInterval
    commitIntervalCommitLog compressedRegister connectTimeoutMillis consumerFallbehindThreshold
    consumerManagerThreadPoolQueueCapacity consumerManageThreadPoolNums debugLockEnable defaultQueryMaxNum
    disableConsumeIfConsumerReadSlowly diskFallRecorded dLegerGroup dLegerPeers dLegerSelfId
    duplicationEnable enableBatchPush enableCalcFilterBitMap enableDetailStat
    enableDLegerCommitLog enablePropertyFilter enableScheduleAsyncDeliver
    enableScheduleMessageStats endTransactionPoolQueueCapacity endTransactionThreadPoolNums
    expectConsumerNumUseFilter fastFailIfNoBufferInStorePool fetchNamesrvAddrByAddressServer
    filterDataCleanTimeSpan filterServerNums filterSupportRetry
    flushConsumerOffsetHistoryInterval flushConsumerOffsetInterval flushDelayOffsetInterval
    flushLeastPagesWhenWarmMapedFile heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity
    highSpeedMode isolateLogEnable longPollingEnable maxDelayTime
    maxErrorRateOfBloomFilter maxLmqConsumeQueueNum maxMsgsNumBatch
    maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory maxTransferCountOnMessageInDisk
    maxTransferCountOnMessageInMemory messageStorePlugIn
    msgTraceTopicName notifyConsumerIdsChangedEnable offsetCheckInSlave osPageCacheBusyTimeOutMills
    preferredLeaderId processReplyMessageThreadPoolNums pullMessageThreadPoolNums pullThreadPoolQueueCapacity
    putMessageFutureThreadPoolNums putMsgIndexHightWater putThreadPoolQueueCapacity queryMessageThreadPoolNums
    queryThreadPoolQueueCapacity readOnlyCommitLogStorePaths
    registerBrokerTimeoutMills rejectTransactionMessage replyThreadPoolQueueCapacity
    rocketmq-acl rocketmqHome scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
    sendMessageThreadPoolNums sendThreadPoolQueueCapacity serverAsyncSemaphoreValue serverCallbackExecutorThreads
    serverChannelMaxIdleTimeSeconds serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
    serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
    shortPollingTimeMills slaveReadEnable startAcceptSendRequestTimeStamp storePathDLedgerCommitLog
    storeReplyMessageEnable traceTopicEnable transactionCheckInterval transactionCheckMax transactionTimeOut
    transferMsgByHeap transientStorePoolEnable transientStorePoolSize useEpollNativeSelector
    useReentrantLockWhenPutMessage waitTimeMillsInHeartbeatQueue waitTimeMillsInPullQueue
    waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue warmMapedFileEnable writeBufferHighWaterMark
    writeBufferLowWaterMark
    """.split()
)

ROCKETMQ_LATER_KEYS = frozenset(
    """
    accessMessageInMemoryHotRatio accountStatsEnable accountStatsPrintZeroValues ackMessageThreadPoolNums
    ackThreadPoolQueueCapacity aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond
    adminBrokerThreadPoolQueueCapacity allAckInSyncStateSet allowRecallWhenBrokerNotWriteable appendAckAsync
    appendCkAsync asyncLearner asyncSendEnable authConfigPath authenticationEnabled authenticationMetadataProvider
    authenticationProvider authenticationStrategy authenticationWhitelist authorizationEnabled
    authorizationMetadataProvider authorizationProvider authorizationStrategy authorizationWhitelist
    autoMessageVersionOnTopicLen batchDispatchRequestThreadPoolNums
    bottomMostCompressionTypeForConsumeQueueStore broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond
    brokerConfigPath brokerElectionPriority cgColdReadThreshold
    channelExpiredTimeout checkSyncStateSetPeriod cleanOfflineBrokerInterval cleanRocksDBDirtyCQIntervalMin
    cleanSwapedMapInterval clearRetryTopicWhenDeleteTopic clusterName coldCtrStrategyEnable
    coldDataFlowControlEnable coldDataScanEnable combineAssignOffsetCQType combineCQEnableCheckSelf
    combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType commercialSizePerMsg
    commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum compactionCqMappedFileSize
    compactionMappedFileSize compactionScheduleInternal compactionThreadNum configBlackList
    configManagerVersion configName consumerOffsetUpdateVersionStep controllerAddr controllerHeartBeatTimeoutMills
    correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval dataReadAheadEnable
    defaultMessageRequestMode defaultPopShareQueueNum delayOffsetUpdateVersionStep
    disableCallbackExecutor disableNettyWorkerGroup disappearTimeAfterStart
    dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread
    enableAcceleratedRecovery enableAsyncReput enableBroadcastOffsetStore
    enableBuildConsumeQueueConcurrently enableCleanExpiredOffset enableCompaction enableConnectionMetrics
    enableControllerMode enableCreateSysGroup enableFastChannelEventProcess
    enableLagAndDlqMetrics enableLmqStats enableLogConsumeQueueRepeatedlyBuildWhenRecover enableMessageStoreMetrics
    enableMixedMessageType enableNetWorkFlowControl enableNotifyAfterPopOrderLockRelease
    enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge enablePopLog enablePopMessageThreshold
    enablePopMetrics enableReconnectForGoAway enableRegisterProducer enableRemoteEscape enableRemotingMetrics
    enableRequestMetrics enableRetryTopicV2 enableRocksDBLog enableRunningFlagsInFlush enableShutdownGracefully
    enableSingleTopicRegister enableSkipLongAwaitingAck enableSplitMetadata
    enableSplitRegistration enableStatsMetrics enableTransactionMetrics estimateAccumulation
    fetchControllerAddrByDnsLookup fetchNameSrvAddrByDnsLookup fetchNamesrvAddrInterval forceVerifyPropCRC
    forwardTimeout globalColdReadThreshold haMaxTimeSlaveNotCatchup inBrokerContainer initAuthenticationUser
    initPopOffsetByCheckMsgInMem innerClientAuthenticationCredentials litePullMessageEnable
    litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity loadBalancePollNameServerInterval
    loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity lockInStrictMode
    logicalDiskSpaceCleanForciblyThreshold logicQueueForceSwapMapInterval logicQueueSwapMapInterval
    logicQueueSwapMapReserveFileNum mappedFileSizeTimerLog mappedFileSwapEnable
    maxAsyncPutMessageRequests maxBatchDeleteFilesNum maxChecksumRange maxConsumeQueueScan maxFilterMessageSize
    maxOffsetMapSize maxPopPollingSize maxReconnectIntervalTimeSeconds maxRecoveryCommitlogFiles
    maxSlaveResendLength maxStatsIdleTimeInMinutes maxTopicLength memTableFlushIntervalMs
    metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills
    metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel
    metricsOtelCardinalityLimit migrateAuthFromV1Enabled
    popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut popConsumerFSServiceInit
    popConsumerKVServiceEnable popConsumerKVServiceInit popConsumerKVServiceLog popFromRetryProbability
    popInflightMessageThreshold popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize
    popPollingSize popResponseReturnActualRetryTopic popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
    printChannelGroups printChannelGroupsMinNum pullBatchMaxMessageCount putConsumeQueueDataByFileChannel
    putMessageTimeout readUnCommitted realTimeNotifyConsumerChange realTimePersistRocksDBConfig recallMessageEnable
    recheckReputOffsetFromCq recoverConcurrently recoverThreadPoolNums rejectPullConsumerEnable
    replicasPerDiskPartition retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval reviveMaxSlow
    reviveQueueNum reviveScanTime rocksdbCompressionType rocksdbCQDoubleWriteEnable rocksdbFlushWalFrequency
    rocksdbWalFileRollingThreshold sampleCountThreshold sampleSteps scanAvailableNameSrv searchBcqByCacheEnable
    sendHeartbeatTimeoutMillis serverLoadBalancerEnable serverNettyWorkerGroupEnable shutdownWaitTimeSeconds
    skipPreOnline skipWhenCKRePutReachMaxTimes socksProxyConfig spinLockCollisionRetreatOptimalDegree
    splitMetadataSize splitRegistrationSize statefulAuthenticationCacheExpiredSecond
    statefulAuthenticationCacheMaxNum statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum
    statRocksDBCQIntervalSec storePathBrokerIdentity storePathEpochFile storeType subscriptionExpiredTimeout
    syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod syncControllerMetadataPeriod
    syncMasterFlushOffsetWhenStartup timerColdDataCheckIntervalMs timerCongestNumEachSlot timerEnableCheckMetrics
    timerEnableRetryUntilSuccess timerFlushIntervalMs timerGetMessageThreadNum timerInterceptDelayLevel
    timerMaxDelaySec timerMetricSmallThreshold timerPrecisionMs timerProgressLogIntervalMs timerPutMessageThreadNum
    timerRollWindowSlot timerSkipUnknownError timerStopEnqueue topicQueueLockNum totalReplicas
    transactionMetricFlushInterval travelCqFileNumWhenGetMessage
    updateNameServerAddrPeriod useABSLock usePIDColdCtrStrategy userCacheExpiredSecond userCacheMaxNum
    userCacheRefreshSecond useServerSideResetOffset useStaticSubscription validateSystemTopicWhenUpdateTopic
    waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue waitTimeMillsInLitePullQueue wakeCommitWhenPutMessage
    wakeFlushWhenPutMessage writeWithoutMmap
    """.split()
)

# With these another broker is asked for than ours: it must not come up as a plain master.
REFUSED = {
    "enableDLegerCommitLog": "there is no DLedger here; leave the line out, and brokerRole says who is master",
    "enableControllerMode": "no controller elects brokers here; leave the line out, and brokerRole says who is master",
}
UNGUARDED = frozenset("aclEnable authenticationEnabled authorizationEnabled".split())  # what a file relies on

# Common in samples although no setter of 4.9 or 5.x has these names: the brokers ignore them in silence.
SAMPLES_ONLY = frozenset(
    """
    abortFile checkTransactionMessageEnable ha.server.ip ha.server.port storeCheckpoint storePathConsumeQueue
    storePathIndex
    """.split()
)
