import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Producers or consumers of a history, until standard input ends, whatever becomes of their broker; a line there ends
 * the sending ("quiet"). For each thing that happens a JSON line with the clock's milliseconds: of a producer "sent" (with status or error), of a consumer "got";
 * an orderly one says "in" when it is given messages and "out" when it gives them back.
 *
 *   produce NAMES FIRST THREADS PAUSE_US   each kind in THREADS threads; numbers from FIRST on
 *   consume NAMES MEMBER                   a member of the group of each kind; "shares": how many queues of each it has
 *
 * The property history.timeout says how many milliseconds a send may take.
 *
 * The kinds are plain, order, delay and decide, each with a topic "History-KIND". What becomes of transaction n is said
 * by n % 4: committed, rolled back, committed or rolled back when the broker asks.
 */
public class History {
    private static final String[] KINDS = {"plain", "order", "delay", "decide"};
    private static final int NUMBERS_A_THREAD = 1_000_000;
    private static final int TIMEOUT_MS = Integer.getInteger("history.timeout", 3000);
    private static volatile boolean ended;
    private static final List<Thread> threads = new java.util.ArrayList<>();
    private static final List<DefaultMQPushConsumer> consumers = new java.util.ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("produce")) {
            produce(arguments[1], Integer.parseInt(arguments[2]), Integer.parseInt(arguments[3]), Long.parseLong(arguments[4]));
        } else {
            consume(arguments[1], arguments[2]);
        }
        Commands.say("{\"e\": \"ready\"}");
        await(); // a line: no more messages, but whoever asks after a transaction is answered
        ended = true;
        for (Thread thread : threads) {
            thread.join(20_000 + 2 * TIMEOUT_MS);
        }
        Commands.say("{\"e\": \"quiet\"}");
        await();
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void await() {
        try {
            for (int each; (each = System.in.read()) >= 0 && each != '\n'; ) {
            }
        } catch (IOException error) {
            error.printStackTrace();
        }
    }

    private static <C extends ClientConfig> C quick(C client, String names, String instance) {
        client.setNamesrvAddr(names);
        client.setInstanceName(instance);
        client.setVipChannelEnabled(false);
        client.setPollNameServerInterval(1000);
        client.setPersistConsumerOffsetInterval(200);
        client.setHeartbeatBrokerInterval(1000);
        return client;
    }

    private static void produce(String names, int first, int count, long pauseUs) throws Exception {
        DefaultMQProducer plain = quick(new DefaultMQProducer("History-producers"), names, "plain");
        TransactionMQProducer decide = quick(new TransactionMQProducer("History-deciders"), names, "decide");
        decide.setTransactionListener(new Decisions());
        for (DefaultMQProducer producer : new DefaultMQProducer[] {plain, decide}) {
            producer.setRetryTimesWhenSendFailed(0);
            producer.setSendMsgTimeout(TIMEOUT_MS);
            producer.start();
        }
        for (int kind = 0; kind < KINDS.length; kind++) {
            for (int thread = 0; thread < count; thread++) {
                int number = first + (kind * count + thread) * NUMBERS_A_THREAD, of = kind;
                Thread sending = new Thread(() -> send(of == 3 ? decide : plain, KINDS[of], number, pauseUs));
                threads.add(sending);
                sending.start();
            }
        }
    }

    private static void send(DefaultMQProducer producer, String kind, int first, long pauseUs) {
        for (int n = first; !ended; n++) {
            Message message = new Message("History-" + kind, "tag", "" + n, ("" + n).getBytes(StandardCharsets.UTF_8));
            long pause = pauseUs, begun = System.currentTimeMillis();
            String outcome;
            try {
                outcome = sent(deliver(producer, kind, message, first, n));
            } catch (Exception error) {
                outcome = "\"error\": \"" + error.toString().replaceAll("[^ -~]|[\"\\\\]", " ") + "\"";
                pause = 100_000;
            }
            Commands.say("{\"e\": \"sent\", \"kind\": \"" + kind + "\", \"n\": " + n + ", \"begun\": " + begun + ", \"at\": "
                + System.currentTimeMillis() + ", " + outcome + "}");
            java.util.concurrent.locks.LockSupport.parkNanos(pause * 1000);
        }
    }

    private static SendResult deliver(DefaultMQProducer producer, String kind, Message message, int first, int n)
            throws Exception {
        switch (kind) {
            case "order":
                return producer.send(message, (queues, each, key) -> queue(queues, (Integer) key), first / NUMBERS_A_THREAD % 4);
            case "delay":
                message.setDelayTimeLevel(1 + n % 3);
                return producer.send(message);
            case "decide":
                return ((TransactionMQProducer) producer).sendMessageInTransaction(message, null);
            default:
                return producer.send(message);
        }
    }

    private static MessageQueue queue(List<MessageQueue> queues, int id) {
        return queues.stream().filter(queue -> queue.getQueueId() == id).findFirst().get();
    }

    private static String sent(SendResult sent) {
        return "\"status\": \"" + sent.getSendStatus().name() + "\", \"queue\": " + sent.getMessageQueue().getQueueId()
            + ", \"offset\": " + sent.getQueueOffset();
    }

    private static class Decisions implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            int n = Integer.parseInt(message.getKeys());
            return n % 4 < 2 ? decided(n) : LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return decided(Integer.parseInt(message.getKeys()));
        }

        private static LocalTransactionState decided(int n) {
            return n % 2 == 0 ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }

    private static void consume(String names, String member) throws Exception {
        for (String kind : KINDS) {
            DefaultMQPushConsumer consumer = quick(new DefaultMQPushConsumer("History-" + kind), names, member + kind);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setConsumeThreadMin(2);
            consumer.setConsumeThreadMax(4);
            consumer.subscribe("History-" + kind, "*");
            if (kind.equals("order")) {
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                    int queue = context.getMessageQueue().getQueueId();
                    Commands.say("{\"e\": \"in\", \"queue\": " + queue + ", \"at\": " + System.currentTimeMillis() + "}");
                    messages.forEach(message -> got(kind, message));
                    java.util.concurrent.locks.LockSupport.parkNanos(2_000_000);
                    Commands.say("{\"e\": \"out\", \"queue\": " + queue + ", \"at\": " + System.currentTimeMillis() + "}");
                    return ConsumeOrderlyStatus.SUCCESS;
                });
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    messages.forEach(message -> got(kind, message));
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
            }
            consumer.start();
            consumers.add(consumer);
        }
        Thread sharing = new Thread(History::tellShares);
        sharing.setDaemon(true);
        sharing.start();
    }

    private static void tellShares() {
        for (List<Long> told = null; ; java.util.concurrent.locks.LockSupport.parkNanos(100_000_000)) {
            List<Long> shares = new java.util.ArrayList<>();
            for (int kind = 0; kind < KINDS.length; kind++) {
                String topic = "History-" + KINDS[kind];
                shares.add(consumers.get(kind).getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable()
                    .keySet().stream().filter(queue -> queue.getTopic().equals(topic)).count());
            }
            if (!shares.equals(told)) {
                Commands.say("{\"e\": \"shares\", \"of\": " + shares + "}");
                told = shares;
            }
        }
    }

    private static void got(String kind, MessageExt message) {
        Commands.say("{\"e\": \"got\", \"kind\": \"" + kind + "\", \"n\": " + new String(message.getBody(), StandardCharsets.UTF_8)
            + ", \"queue\": " + message.getQueueId() + ", \"offset\": " + message.getQueueOffset() + ", \"times\": "
            + message.getReconsumeTimes() + ", \"at\": " + System.currentTimeMillis() + "}");
    }
}
