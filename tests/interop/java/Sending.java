import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenes of producers. */
@SuppressWarnings("deprecation")
class Sending {
    private static final int COUNT = 8;

    private static Scenes.Line answer(SendResult sent) {
        return new Scenes.Line().put("status", sent.getSendStatus().name())
            .put("topic", sent.getMessageQueue().getTopic()).put("broker", sent.getMessageQueue().getBrokerName())
            .put("region", sent.getRegionId()).put("traceOn", sent.isTraceOn())
            .put("transaction", transaction(sent)).put("queueOffset", sent.getQueueOffset())
            .put("idLength", sent.getMsgId().length()).put("offsetIdLength", sent.getOffsetMsgId().length());
    }

    private static String transaction(SendResult sent) {
        String id = sent.getTransactionId();
        return id == null ? "none" : sent.getMsgId().contains(id) ? "the message" : "another";
    }

    static void sync(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        List<Scenes.Line> answers = new ArrayList<>();
        Map<Integer, Integer> queues = new TreeMap<>();
        for (int n = 0; n < COUNT; n++) {
            SendResult sent = producer.send(Scenes.message(topic, "A", n));
            answers.add(answer(sent));
            queues.merge(sent.getMessageQueue().getQueueId(), 1, Integer::sum);
        }
        Scenes.sayAll(answers);
        Scenes.say(new Scenes.Line().put("queues", queues));
        Scenes.say(answer(producer.send(new Message("Scene-created-by-sending", "first".getBytes()))));
    }

    static void async(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        List<Scenes.Line> answers = Collections.synchronizedList(new ArrayList<>());
        for (int n = 0; n < COUNT; n++) {
            producer.send(Scenes.message(topic, "A", n), new SendCallback() {
                @Override
                public void onSuccess(SendResult sent) {
                    answers.add(answer(sent));
                }

                @Override
                public void onException(Throwable error) {
                    answers.add(Scenes.failure(error));
                }
            });
        }
        Scenes.await(() -> answers.size() == COUNT);
        for (Scenes.Line answer : answers) {
            answer.put("queueOffset", "*"); // which of them came first is not said
        }
        Scenes.sayAll(answers);
    }

    static void oneway(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        DefaultMQPullConsumer reader = Scenes.puller(group);
        for (int n = 0; n < COUNT; n++) {
            producer.sendOneway(Scenes.message(topic, "A", n));
        }
        Scenes.await(() -> Scenes.count(reader, topic) >= COUNT);
        Scenes.say(new Scenes.Line().put("stored", Scenes.count(reader, topic)));
    }

    static void batch(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        List<Message> messages = new ArrayList<>();
        for (int n = 0; n < 5; n++) {
            messages.add(Scenes.message(topic, "Tag" + n, n));
        }
        SendResult sent = producer.send(messages);
        Scenes.say(answer(sent).put("ids", sent.getOffsetMsgId().split(",").length));
        List<MessageExt> read = read(group, sent.getMessageQueue(), 5);
        for (int n = 0; n < read.size(); n++) {
            Scenes.say(Scenes.seen(read.get(n)).put("queueOffset", read.get(n).getQueueOffset()));
        }
    }

    static void compressed(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        producer.setCompressMsgBodyOverHowmuch(1024);
        byte[] body = "all work and no play ".repeat(1000).getBytes(StandardCharsets.UTF_8);
        SendResult sent = producer.send(new Message(topic, "A", body));
        Scenes.say(answer(sent));
        MessageExt read = read(group, sent.getMessageQueue(), 1).get(0);
        Scenes.say(new Scenes.Line().put("sysFlag", read.getSysFlag()).put("same", java.util.Arrays.equals(body, read.getBody()))
            .put("smaller", read.getStoreSize() < body.length));
    }

    static void large(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        producer.setMaxMessageSize(64 << 20);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        for (int size : new int[] {4 << 20, (4 << 20) + 1, 6 << 20}) {
            refused(producer, new Message(topic, "A", new byte[size]));
        }
        refused(producer, new Message(topic, "A", "k".repeat(300), new byte[10]));
        Message wordy = new Message(topic, "A", new byte[10]);
        wordy.putUserProperty("long", "p".repeat(33_000));
        refused(producer, wordy);
        refused(producer, new Message("Scene-" + "t".repeat(110), new byte[10]));
    }

    static void refusals(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        MessageQueue queue = producer.fetchPublishMessageQueues(topic).get(0);
        refused(producer, Scenes.message(topic, "A", 1), new MessageQueue(topic, queue.getBrokerName(), 77));
        refused(producer, Scenes.message("TBW102", "A", 1));
        refused(producer, Scenes.message("SCHEDULE_TOPIC_XXXX", "A", 1));
        refused(producer, Scenes.message("no%topic", "A", 1));
        Message waiting = Scenes.message(topic, "A", 1);
        waiting.setWaitStoreMsgOK(false);
        refused(producer, waiting);
    }

    private static void refused(DefaultMQProducer producer, Message message, MessageQueue... queue) {
        try {
            SendResult sent = queue.length == 0 ? producer.send(message) : producer.send(message, queue[0]);
            Scenes.say(new Scenes.Line().put("size", message.getBody().length).put("status", sent.getSendStatus().name()));
        } catch (Exception error) {
            Scenes.say(Scenes.failure(error).put("size", message.getBody().length));
        }
    }

    static void queues(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        List<MessageQueue> queues = new ArrayList<>(producer.fetchPublishMessageQueues(topic));
        Collections.sort(queues);
        Scenes.say(new Scenes.Line().put("queues", queues));
        for (MessageQueue queue : queues) {
            for (int n = 0; n < 3; n++) {
                SendResult sent = producer.send(Scenes.message(topic, null, n), queue);
                Scenes.say(answer(sent).put("queueId", sent.getMessageQueue().getQueueId()));
            }
        }
        for (MessageQueue queue : queues) {
            for (MessageExt read : read(group, queue, 3)) {
                Scenes.say(Scenes.seen(read).put("queueId", read.getQueueId()).put("queueOffset", read.getQueueOffset()));
            }
        }
    }

    /** The first messages of a queue. */
    static List<MessageExt> read(String group, MessageQueue queue, int count) throws Exception {
        DefaultMQPullConsumer reader = Scenes.puller(group + "-readers");
        List<MessageExt> read = new ArrayList<>();
        Scenes.await(() -> {
            PullResult pulled = reader.pull(queue, "*", read.size(), 32);
            if (pulled.getMsgFoundList() != null) {
                read.addAll(pulled.getMsgFoundList());
            }
            return read.size() >= count;
        });
        return read;
    }
}
