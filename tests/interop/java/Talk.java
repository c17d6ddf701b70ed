import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own client, told what to do (Commands).
 *
 *   produce topic=T first=N count=N [batch=K] [timeout=MS]  one message after the other, each acknowledged one told at
 *                                                           once; batch=K sends K at a time. Number n decides what a
 *                                                           message holds. Ends at the first that is not acknowledged.
 *   consume topic=T [tags=EXPRESSION]                       every message of every queue, from its minimum to its maximum
 *   query topic=T keys=K,K,...                              what the broker's index finds of each, with its key
 *
 * The address of the name server is the only argument.
 */
public class Talk {
    private static final AtomicInteger INSTANCES = new AtomicInteger();
    private static String nameServer;

    public static void main(String[] arguments) throws Exception {
        nameServer = arguments[0];
        Commands.serve((command, options) -> {
            switch (command) {
                case "produce": produce(options); break;
                case "consume": consume(options); break;
                case "query": query(options); break;
                default: throw new IllegalArgumentException(command);
            }
        });
    }

    /** What message number `n` holds: the test works out the same. */
    static Message message(String topic, int n) {
        byte[] body = ("body " + n + " é消").repeat(1 + n % 7).getBytes(StandardCharsets.UTF_8);
        Message message = new Message(topic, n % 5 == 0 ? null : "Tag" + n % 3, "key" + n + " of" + n % 10, body);
        message.putUserProperty("n", "" + n);
        if (n % 4 == 0) {
            message.putUserProperty("named", "värde " + n);
        }
        return message;
    }

    private static void produce(Map<String, String> options) throws Exception {
        int first = Integer.parseInt(options.get("first")), count = Integer.parseInt(options.get("count"));
        int batch = Integer.parseInt(options.getOrDefault("batch", "1"));
        DefaultMQProducer producer = new DefaultMQProducer("interop-producers");
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("producer-" + INSTANCES.incrementAndGet());
        producer.setVipChannelEnabled(false);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(Integer.parseInt(options.getOrDefault("timeout", "60000")));
        producer.start();
        try {
            for (int n = first; n < first + count; n += batch) {
                List<Message> messages = new ArrayList<>();
                for (int each = n; each < Math.min(n + batch, first + count); each++) {
                    messages.add(message(options.get("topic"), each));
                }
                SendResult sent = batch == 1 ? producer.send(messages.get(0)) : producer.send(messages);
                String[] ids = sent.getOffsetMsgId().split(",");
                String[] unique = sent.getMsgId().split(",");
                for (int each = 0; each < messages.size(); each++) {
                    Commands.say("{\"n\": " + (n + each) + ", \"status\": " + Commands.quoted(sent.getSendStatus().name())
                        + ", \"queueId\": " + sent.getMessageQueue().getQueueId()
                        + ", \"queueOffset\": " + (sent.getQueueOffset() + each)
                        + ", \"offsetMsgId\": " + Commands.quoted(ids[each]) + ", \"uniqKey\": " + Commands.quoted(unique[each]) + "}");
                }
            }
        } finally {
            end(producer::shutdown);
        }
    }

    @SuppressWarnings("deprecation") // the pull consumer of both lines: no rebalancing, so no waiting
    private static void consume(Map<String, String> options) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop-consumers");
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("consumer-" + INSTANCES.incrementAndGet());
        consumer.setVipChannelEnabled(false);
        consumer.start();
        try {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(options.get("topic"))) {
                long at = consumer.minOffset(queue), end = consumer.maxOffset(queue);
                Commands.say("{\"queueId\": " + queue.getQueueId() + ", \"minOffset\": " + at + ", \"maxOffset\": " + end + "}");
                while (at < end) {
                    PullResult pulled = consumer.pull(queue, options.getOrDefault("tags", "*"), at, 32);
                    if (pulled.getMsgFoundList() != null) {
                        for (MessageExt message : pulled.getMsgFoundList()) {
                            Commands.say(told(message));
                        }
                    }
                    if (pulled.getNextBeginOffset() <= at) {
                        throw new IllegalStateException(queue + " at " + at + ": " + pulled.getPullStatus());
                    }
                    at = pulled.getNextBeginOffset();
                }
            }
        } finally {
            end(consumer::shutdown);
        }
    }

    @SuppressWarnings("deprecation")
    private static void query(Map<String, String> options) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop-queries");
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("query-" + INSTANCES.incrementAndGet());
        producer.setVipChannelEnabled(false);
        producer.start();
        try {
            for (String key : options.get("keys").split(",")) {
                List<MessageExt> found = producer.queryMessage(options.get("topic"), key, 64, 0, Long.MAX_VALUE).getMessageList();
                for (MessageExt message : found) {
                    Commands.say("{\"key\": " + Commands.quoted(key) + ", \"message\": " + told(message) + "}");
                }
            }
        } finally {
            end(producer::shutdown);
        }
    }

    /** Shutting down waits for seconds in 5.x, for nothing that anybody here needs. */
    private static void end(Runnable shutdown) {
        Thread thread = new Thread(shutdown);
        thread.setDaemon(true);
        thread.start();
    }

    private static String told(MessageExt message) throws Exception {
        StringBuilder properties = new StringBuilder();
        for (Map.Entry<String, String> entry : new TreeMap<>(message.getProperties()).entrySet()) {
            properties.append(properties.length() == 0 ? "" : ", ");
            properties.append(Commands.quoted(entry.getKey())).append(": ").append(Commands.quoted(entry.getValue()));
        }
        StringBuilder hash = new StringBuilder();
        for (byte each : MessageDigest.getInstance("SHA-256").digest(message.getBody())) {
            hash.append(String.format("%02x", each));
        }
        return "{\"msgId\": " + Commands.quoted(message.getMsgId()) + ", \"topic\": " + Commands.quoted(message.getTopic())
            + ", \"queueId\": " + message.getQueueId() + ", \"queueOffset\": " + message.getQueueOffset()
            + ", \"physicalOffset\": " + message.getCommitLogOffset() + ", \"tags\": " + Commands.quoted(message.getTags())
            + ", \"keys\": " + Commands.quoted(message.getKeys()) + ", \"bodySha256\": \"" + hash + "\", \"properties\": {"
            + properties + "}}";
    }
}
