package org.apache.rocketmq.test.base;

import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.test.client.rmq.RMQAsyncSendProducer;
import org.apache.rocketmq.test.client.rmq.RMQNormalConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalProducer;
import org.apache.rocketmq.test.client.rmq.RMQTransactionalProducer;
import org.apache.rocketmq.test.clientinterface.AbstractMQConsumer;
import org.apache.rocketmq.test.clientinterface.AbstractMQProducer;
import org.apache.rocketmq.test.factory.ConsumerFactory;
import org.apache.rocketmq.test.listener.AbstractListener;
import org.apache.rocketmq.test.util.MQAdmin;
import org.apache.rocketmq.test.util.MQRandomUtils;
import org.apache.rocketmq.test.util.TestUtils;

/**
 * What RocketMQ's published test classes extend: the names and methods that they ask for. Theirs starts two brokers in
 * its own process; this one, first on the class path, names two that run already. Where, the system properties
 * suite.names (host:port of the name server), suite.cluster, suite.brokers (two names) and suite.seconds say.
 */
public class BaseConf {
    private static final int QUEUES = 8;
    private static final int CREATE_SECONDS = 30;
    private static final String[] BROKERS = System.getProperty("suite.brokers").split(",");

    public static String nsAddr = System.getProperty("suite.names");
    protected static String clusterName = System.getProperty("suite.cluster");
    protected static String broker1Name = BROKERS[0];
    protected static String broker2Name = BROKERS[1];
    protected static int brokerNum = BROKERS.length;
    protected static int waitTime = 5;
    protected static int consumeTime = Integer.getInteger("suite.seconds") * 1000;
    protected static NamesrvController namesrvController;
    protected static BrokerController brokerController1;
    protected static BrokerController brokerController2;
    protected static List<Object> mqClients = new ArrayList<>();
    protected static boolean debug = false;

    static {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, String.valueOf(MQVersion.CURRENT_VERSION));
    }

    public static String initTopic() {
        return initTopicWithName(MQRandomUtils.getRandomTopic());
    }

    public static String initTopicWithName(String topic) {
        long deadline = System.nanoTime() + CREATE_SECONDS * 1_000_000_000L;
        while (!MQAdmin.createTopic(nsAddr, clusterName, topic, QUEUES)) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("no topic " + topic + " within " + CREATE_SECONDS + " s");
            }
            TestUtils.waitForMoment(100);
        }
        return topic;
    }

    public static String initConsumerGroup() {
        return initConsumerGroup(MQRandomUtils.getRandomConsumerGroup());
    }

    public static String initConsumerGroup(String group) {
        MQAdmin.createSub(nsAddr, clusterName, group);
        return group;
    }

    public static RMQNormalProducer getProducer(String names, String topic) {
        return getProducer(names, topic, false);
    }

    public static RMQNormalProducer getProducer(String names, String topic, boolean tls) {
        return noted(new RMQNormalProducer(names, topic, tls));
    }

    public static RMQNormalProducer getProducer(String names, String topic, String group, String instance) {
        return noted(new RMQNormalProducer(names, topic, group, instance));
    }

    public static RMQTransactionalProducer getTransactionalProducer(
            String names, String topic, TransactionListener listener) {
        return noted(new RMQTransactionalProducer(names, topic, false, listener));
    }

    public static RMQAsyncSendProducer getAsyncProducer(String names, String topic) {
        return noted(new RMQAsyncSendProducer(names, topic));
    }

    public static RMQNormalConsumer getConsumer(
            String names, String topic, String expression, AbstractListener listener) {
        return getConsumer(names, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
            String names, String topic, String expression, AbstractListener listener, boolean tls) {
        return getConsumer(names, initConsumerGroup(), topic, expression, listener, tls);
    }

    public static RMQNormalConsumer getConsumer(
            String names, String group, String topic, String expression, AbstractListener listener) {
        return getConsumer(names, group, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
            String names, String group, String topic, String expression, AbstractListener listener, boolean tls) {
        return noted(ConsumerFactory.getRMQNormalConsumer(names, group, topic, expression, listener, tls));
    }

    public static void shutdown() {
        for (Object client : mqClients) {
            if (client instanceof AbstractMQProducer) {
                ((AbstractMQProducer) client).shutdown();
            } else {
                ((AbstractMQConsumer) client).shutdown();
            }
        }
        mqClients.clear();
    }

    private static <T> T noted(T client) {
        mqClients.add(client);
        return client;
    }
}
