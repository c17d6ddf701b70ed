import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own client in scenes: each line on standard input is the name of one, its topic is "Scene-NAME" (four
 * queues), its group "group-NAME". What the scene sees is printed as JSON lines that are the same each time: moments,
 * hosts and identities are left out. The last line is {"done": "NAME"} or {"failed": "NAME", "error": "..."}.
 *
 * The address of the name server is the only argument. The scenes are the methods of Sending, Pulling, Consuming and
 * Deciding.
 */
public class Scenes {
    static final int QUEUES = 4;
    static final long SECONDS = 120;
    private static final List<String> MOMENTS = Arrays.asList(
        "UNIQ_KEY", "MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "ORIGIN_MESSAGE_ID", "__transactionId__",
        "REPLY_TO_CLIENT", "CORRELATION_ID", "PUSH_REPLY_TIME", "ARRIVE_TIME", "TRAN_PREPARED_QUEUE_OFFSET",
        "REPLY_MESSAGE_ARRIVE_TIME", "DLQ_ORIGIN_MESSAGE_ID", "TIMER_OUT_MS", "REAL_QID", "TRANSACTION_CHECK_TIMES",
        "1ST_CONSUME_TIME", "__CRC32#");
    private static final AtomicInteger INSTANCES = new AtomicInteger();
    private static final Class<?>[] PARTS = {Sending.class, Pulling.class, Consuming.class, Deciding.class};
    private static final List<Runnable> ENDS = new ArrayList<>();
    static String nameServer;

    public static void main(String[] arguments) throws Exception {
        nameServer = arguments[0];
        Commands.serve((name, options) -> {
            try {
                method(name).invoke(null, "Scene-" + name, "group-" + name);
            } finally {
                endAll();
            }
        });
    }

    private static Method method(String name) throws NoSuchMethodException {
        for (Class<?> part : PARTS) {
            for (Method method : part.getDeclaredMethods()) {
                if (method.getName().equals(name)) {
                    return method;
                }
            }
        }
        throw new NoSuchMethodException(name);
    }

    /** What all clients here have in common: quick to notice, and alone in their connections. */
    static <C extends ClientConfig> C quick(C client) {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName("scene-" + INSTANCES.incrementAndGet());
        client.setVipChannelEnabled(false);
        client.setPollNameServerInterval(1000);
        client.setPersistConsumerOffsetInterval(300);
        client.setHeartbeatBrokerInterval(1000);
        return client;
    }

    static DefaultMQProducer producer(String group) throws Exception {
        return started(quick(new DefaultMQProducer(group + "-producers")));
    }

    static DefaultMQProducer started(DefaultMQProducer producer) throws Exception {
        producer.setSendMsgTimeout(60_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        atEnd(producer::shutdown);
        return producer;
    }

    @SuppressWarnings("deprecation")
    static DefaultMQPullConsumer puller(String group) throws Exception {
        DefaultMQPullConsumer consumer = quick(new DefaultMQPullConsumer(group));
        consumer.start();
        atEnd(consumer::shutdown);
        return consumer;
    }

    /** A consumer that is not started yet. */
    static DefaultMQPushConsumer pusher(String group, String topic, String tags) throws Exception {
        DefaultMQPushConsumer consumer = quick(new DefaultMQPushConsumer(group));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.subscribe(topic, tags);
        return consumer;
    }

    static void atEnd(Runnable end) {
        ENDS.add(end);
    }

    private static void endAll() {
        Collections.reverse(ENDS);
        for (Runnable end : ENDS) {
            try {
                end.run();
            } catch (Throwable error) {
                error.printStackTrace();
            }
        }
        ENDS.clear();
    }

    static Message message(String topic, String tags, int n) {
        Message message = new Message(topic, tags, "key" + n, ("body " + n).getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("n", "" + n);
        return message;
    }

    static void send(DefaultMQProducer producer, String topic, String tags, int first, int count) throws Exception {
        for (int n = first; n < first + count; n++) {
            SendResult sent = producer.send(message(topic, tags, n));
            if (!sent.getSendStatus().name().equals("SEND_OK")) {
                throw new IllegalStateException(n + ": " + sent);
            }
        }
    }

    static String body(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    /** What a consumer sees of a message, but for moments and identities. */
    static Line seen(MessageExt message) {
        Map<String, Object> properties = new TreeMap<>();
        for (Map.Entry<String, String> each : message.getProperties().entrySet()) {
            properties.put(each.getKey(), MOMENTS.contains(each.getKey()) ? "*" : each.getValue());
        }
        return new Line().put("body", body(message)).put("topic", message.getTopic()).put("flag", message.getFlag())
            .put("sysFlag", message.getSysFlag()).put("reconsumeTimes", message.getReconsumeTimes())
            .put("preparedTransactionOffset", message.getPreparedTransactionOffset() != 0)
            .put("born", message.getBornTimestamp() > 0).put("stored", message.getStoreTimestamp() > 0)
            .put("storeSize", message.getStoreSize() > 0)
            .put("ids", message.getMsgId() != null && !message.getMsgId().isEmpty()).put("properties", properties);
    }

    /** Each of the lines, sorted. */
    static void sayAll(Collection<Line> lines) {
        List<String> texts = new ArrayList<>();
        for (Line line : lines) {
            texts.add(line.toString());
        }
        Collections.sort(texts);
        texts.forEach(Commands::say);
    }

    static void say(Line line) {
        Commands.say(line.toString());
    }

    /** Wait for what others bring about; false at the deadline. */
    static boolean await(Callable<Boolean> condition) throws Exception {
        return await(condition, SECONDS);
    }

    static boolean await(Callable<Boolean> condition, double seconds) throws Exception {
        long deadline = System.nanoTime() + (long) (seconds * 1e9);
        while (!condition.call()) {
            if (System.nanoTime() > deadline) {
                return false;
            }
            Thread.sleep(20);
        }
        return true;
    }

    /** How many messages a topic's queues have had. */
    @SuppressWarnings("deprecation")
    static long count(DefaultMQPullConsumer consumer, String topic) throws Exception {
        long count = 0;
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            count += consumer.maxOffset(queue);
        }
        return count;
    }

    /** An error as the client shows it: its class and, of a broker's, code and words. */
    static Line failure(Throwable error) {
        String text = String.valueOf(error.getMessage()).replaceAll("\\d+\\.\\d+\\.\\d+\\.\\d+(:\\d+)?", "HOST");
        return new Line().put("error", error.getClass().getSimpleName()).put("message", text.split("\n")[0]);
    }

    /** One line of JSON. */
    static class Line {
        private final Map<String, Object> fields = new TreeMap<>();

        Line put(String name, Object value) {
            fields.put(name, value);
            return this;
        }

        @Override
        public String toString() {
            return json(fields);
        }

        private static String json(Object value) {
            if (value instanceof Map) {
                List<String> parts = new ArrayList<>();
                new TreeMap<>((Map<?, ?>) value).forEach((name, each) -> parts.add(Commands.quoted("" + name) + ": " + json(each)));
                return "{" + String.join(", ", parts) + "}";
            }
            if (value instanceof Collection) {
                List<String> parts = new ArrayList<>();
                ((Collection<?>) value).forEach(each -> parts.add(json(each)));
                return "[" + String.join(", ", parts) + "]";
            }
            boolean bare = value == null || value instanceof Number || value instanceof Boolean;
            return bare ? "" + value : Commands.quoted("" + value);
        }
    }
}
