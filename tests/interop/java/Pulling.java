import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenes of those who fetch for themselves, and of queries. */
@SuppressWarnings("deprecation")
class Pulling {
    private static Scenes.Line outcome(PullResult pulled) {
        List<String> bodies = new ArrayList<>();
        if (pulled.getMsgFoundList() != null) {
            pulled.getMsgFoundList().forEach(message -> bodies.add(Scenes.body(message)));
        }
        return new Scenes.Line().put("status", pulled.getPullStatus().name()).put("bodies", bodies)
            .put("next", pulled.getNextBeginOffset()).put("min", pulled.getMinOffset()).put("max", pulled.getMaxOffset());
    }

    static void pull(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        MessageQueue queue = sorted(producer.fetchPublishMessageQueues(topic)).get(1);
        for (int n = 0; n < 10; n++) {
            producer.send(Scenes.message(topic, n % 2 == 0 ? "A" : "B", n), queue);
        }
        DefaultMQPullConsumer consumer = Scenes.puller(group);
        Scenes.await(() -> consumer.maxOffset(queue) == 10);
        for (long offset : new long[] {0, 4, 9, 10, 11, 1000, Long.MAX_VALUE}) {
            Scenes.say(outcome(consumer.pull(queue, "*", offset, 3)).put("offset", offset));
        }
        for (String tags : new String[] {"A", "B || C", "C", "A||B"}) {
            Scenes.say(outcome(consumer.pull(queue, tags, 0, 32)).put("tags", tags));
        }
        Scenes.say(new Scenes.Line().put("min", consumer.minOffset(queue)).put("max", consumer.maxOffset(queue))
            .put("before all", consumer.searchOffset(queue, 1)).put("after all", consumer.searchOffset(queue, Long.MAX_VALUE))
            .put("stored early", consumer.earliestMsgStoreTime(queue) > 0)
            .put("unknown offset", consumer.fetchConsumeOffset(queue, true)));
        consumer.updateConsumeOffset(queue, 7);
        consumer.getOffsetStore().persist(queue);
        Scenes.await(() -> consumer.fetchConsumeOffset(queue, true) == 7);
        Scenes.say(new Scenes.Line().put("kept offset", consumer.fetchConsumeOffset(queue, true)));
        try {
            Scenes.say(outcome(consumer.pull(new MessageQueue(topic, queue.getBrokerName(), 50), "*", 0, 3)));
        } catch (Exception error) {
            Scenes.say(Scenes.failure(error));
        }
    }

    static void blocking(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        MessageQueue queue = sorted(producer.fetchPublishMessageQueues(topic)).get(0);
        DefaultMQPullConsumer consumer = Scenes.puller(group);
        List<Object> pulled = Collections.synchronizedList(new ArrayList<>());
        Thread waiting = new Thread(() -> {
            try {
                PullResult result;
                do {
                    result = consumer.pullBlockIfNotFound(queue, "B", 0, 32);
                } while (result.getMsgFoundList() == null);
                pulled.add(outcome(result).put("next", "*").put("max", "*"));
            } catch (Exception error) {
                pulled.add(Scenes.failure(error));
            }
        });
        waiting.start();
        producer.send(Scenes.message(topic, "A", 1), queue);
        producer.send(Scenes.message(topic, "B", 2), queue);
        Scenes.await(() -> pulled.size() == 1);
        Scenes.say(new Scenes.Line().put("pulled", "" + pulled));
    }

    static void lite(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        Scenes.send(producer, topic, "A", 0, 20);
        DefaultLitePullConsumer consumer = Scenes.quick(new DefaultLitePullConsumer(group));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "A");
        consumer.setAutoCommit(false);
        consumer.start();
        Scenes.atEnd(consumer::shutdown);
        List<Scenes.Line> read = new ArrayList<>();
        Scenes.await(() -> {
            consumer.poll(200).forEach(message -> read.add(Scenes.seen(message)));
            return read.size() >= 20;
        });
        Scenes.sayAll(read);
        consumer.commitSync();
        List<MessageQueue> queues = sorted(consumer.assignment());
        for (MessageQueue queue : queues) {
            Scenes.await(() -> consumer.committed(queue) == 5, 30);
            Scenes.say(new Scenes.Line().put("queue", queue).put("committed", consumer.committed(queue)));
        }
        consumer.seek(queues.get(2), 3);
        List<Scenes.Line> again = new ArrayList<>();
        Scenes.await(() -> {
            consumer.poll(200).forEach(message -> again.add(new Scenes.Line().put("offset", message.getQueueOffset())));
            return again.size() >= 2;
        });
        Scenes.sayAll(again);
    }

    static void assigned(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        Scenes.send(producer, topic, "A", 0, 20);
        DefaultLitePullConsumer consumer = Scenes.quick(new DefaultLitePullConsumer(group));
        consumer.setAutoCommit(false);
        consumer.start();
        Scenes.atEnd(consumer::shutdown);
        List<MessageQueue> queues = sorted(consumer.fetchMessageQueues(topic)).subList(0, 2);
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        TreeSet<String> offsets = new TreeSet<>();
        Scenes.await(() -> {
            consumer.poll(200).forEach(message -> offsets.add(message.getQueueId() + ":" + message.getQueueOffset()));
            return offsets.size() >= 10;
        });
        Scenes.say(new Scenes.Line().put("offsets", offsets));
    }

    static void query(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        Scenes.send(producer, topic, "A", 0, 5);
        SendResult sent = producer.send(Scenes.message(topic, "B", 3));
        Scenes.await(() -> byKey(producer, topic, "key3").size() == 2);
        for (String key : new String[] {"key0", "key3", "no key"}) {
            List<Scenes.Line> lines = new ArrayList<>();
            byKey(producer, topic, key).forEach(message -> lines.add(Scenes.seen(message).put("key", key)));
            Scenes.sayAll(lines);
            Scenes.say(new Scenes.Line().put("key", key).put("matching", lines.size()));
        }
        Scenes.say(Scenes.seen(producer.viewMessage(topic, sent.getMsgId())).put("by", "unique key"));
        Scenes.say(Scenes.seen(producer.viewMessage(topic, sent.getOffsetMsgId())).put("by", "id"));
        String nowhere = sent.getOffsetMsgId().substring(0, 16) + "00000000FFFFFFFF";
        for (String id : new String[] {nowhere, "7F00000100002A9F0000000000000000".replace('2', '3'), "no id"}) {
            try {
                Scenes.say(new Scenes.Line().put("message", "" + producer.viewMessage(topic, id)));
            } catch (Exception error) {
                Scenes.say(new Scenes.Line().put("error", error.getClass().getSimpleName()));
            }
        }
    }

    private static List<MessageExt> byKey(DefaultMQProducer producer, String topic, String key) throws Exception {
        try {
            QueryResult result = producer.queryMessage(topic, key, 32, 0, Long.MAX_VALUE);
            return result.getMessageList();
        } catch (org.apache.rocketmq.client.exception.MQClientException none) {
            return new ArrayList<>();
        }
    }

    static List<MessageQueue> sorted(Collection<MessageQueue> queues) {
        List<MessageQueue> sorted = new ArrayList<>();
        for (MessageQueue queue : queues) {
            sorted.add(new MessageQueue(queue.getTopic(), queue.getBrokerName(), queue.getQueueId()));
        }
        Collections.sort(sorted);
        return sorted;
    }
}
