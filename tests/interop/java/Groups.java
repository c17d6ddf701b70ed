import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own push consumers and producers, told what to do (Commands).
 *
 *   join name=N group=G topic=T [orderly=true] [names=A] [first=true]   one more consumer, in a client of its own, of
 *                                        the name server A; its group begins with the first message or with new ones
 *   queues name=N                        the queues that it has, those that it holds locks of, how many messages it received
 *   bodies name=N                        how often it received each body
 *   persist name=N                       it says how far it is, which by itself it does ten seconds after its start
 *   produce name=N group=G [names=A]     one more producer, in a client of its own
 *   send name=N topic=T queue=Q first=F count=C   messages "body F"..., with key "key F" and tag "tag"; a line for each
 *   leave name=N                         it says goodbye
 */
public class Groups {
    private static final Map<String, DefaultMQPushConsumer> CONSUMERS = new ConcurrentHashMap<>();
    private static final Map<String, AtomicInteger> RECEIVED = new ConcurrentHashMap<>();
    private static final Map<String, List<String>> BODIES = new ConcurrentHashMap<>();
    private static final Map<String, DefaultMQProducer> PRODUCERS = new ConcurrentHashMap<>();
    private static String nameServer;

    public static void main(String[] arguments) throws Exception {
        nameServer = arguments[0];
        Commands.serve((command, options) -> {
            switch (command) {
                case "join": join(options); break;
                case "queues": queues(options); break;
                case "bodies": bodies(options); break;
                case "persist": CONSUMERS.get(options.get("name")).getDefaultMQPushConsumerImpl().persistConsumerOffset(); break;
                case "produce": produce(options); break;
                case "send": send(options); break;
                case "leave": leave(options.get("name")); break;
                default: throw new IllegalArgumentException(command);
            }
        });
    }

    private static void join(Map<String, String> options) throws Exception {
        String name = options.get("name");
        AtomicInteger received = new AtomicInteger();
        RECEIVED.put(name, received);
        List<String> bodies = Collections.synchronizedList(new ArrayList<>());
        BODIES.put(name, bodies);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.get("group"));
        consumer.setNamesrvAddr(options.getOrDefault("names", nameServer));
        consumer.setPersistConsumerOffsetInterval(500);
        if (options.containsKey("first")) {
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        }
        consumer.setInstanceName(name);
        consumer.setVipChannelEnabled(false);
        consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueAveragely());
        consumer.subscribe(options.get("topic"), "*");
        if (options.containsKey("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> bodies.add(body(message)));
                received.addAndGet(messages.size());
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> bodies.add(body(message)));
                received.addAndGet(messages.size());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        CONSUMERS.put(name, consumer);
    }

    private static void queues(Map<String, String> options) {
        String name = options.get("name");
        TreeSet<String> queues = new TreeSet<>(), locked = new TreeSet<>();
        CONSUMERS.get(name).getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().forEach((queue, of) -> {
            queues.add("\"" + queue.getTopic() + ":" + queue.getQueueId() + "\"");
            if (of.isLocked()) {
                locked.add("\"" + queue.getTopic() + ":" + queue.getQueueId() + "\"");
            }
        });
        Commands.say("{\"queues\": " + queues + ", \"locked\": " + locked + ", \"received\": " + RECEIVED.get(name).get() + "}");
    }

    private static void bodies(Map<String, String> options) {
        List<String> bodies = BODIES.get(options.get("name"));
        synchronized (bodies) {
            TreeMap<String, Integer> sorted = new TreeMap<>();
            bodies.forEach(body -> sorted.merge("\"" + body + "\"", 1, Integer::sum));
            List<String> counts = new ArrayList<>();
            sorted.forEach((body, count) -> counts.add(body + ": " + count));
            Commands.say("{" + String.join(", ", counts) + "}");
        }
    }

    private static String body(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static void produce(Map<String, String> options) throws Exception {
        String name = options.get("name");
        DefaultMQProducer producer = new DefaultMQProducer(options.get("group"));
        producer.setNamesrvAddr(options.getOrDefault("names", nameServer));
        producer.setInstanceName(name);
        producer.setVipChannelEnabled(false);
        producer.setSendMsgTimeout(20_000);
        producer.setHeartbeatBrokerInterval(1000); // the first one comes before it knows a broker
        producer.start();
        PRODUCERS.put(name, producer);
    }

    private static void send(Map<String, String> options) throws Exception {
        DefaultMQProducer producer = PRODUCERS.get(options.get("name"));
        int first = Integer.parseInt(options.get("first")), queueId = Integer.parseInt(options.get("queue"));
        MessageQueue queue = producer.fetchPublishMessageQueues(options.get("topic")).stream()
            .filter(each -> each.getQueueId() == queueId).findFirst().get();
        for (int n = first; n < first + Integer.parseInt(options.get("count")); n++) {
            Message message = new Message(options.get("topic"), "tag", "key" + n, ("body " + n).getBytes(StandardCharsets.UTF_8));
            SendResult sent = producer.send(message, queue);
            Commands.say("{\"status\": \"" + sent.getSendStatus() + "\", \"id\": \"" + sent.getMsgId() + "\", \"offsetId\": \""
                + sent.getOffsetMsgId() + "\"}");
        }
    }

    private static void leave(String name) {
        if (PRODUCERS.containsKey(name)) {
            PRODUCERS.remove(name).shutdown();
        } else {
            CONSUMERS.remove(name).shutdown();
        }
    }
}
