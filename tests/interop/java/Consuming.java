import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenes of push consumers. */
@SuppressWarnings("deprecation")
class Consuming {
    private static DefaultMQPushConsumer started(
            String group, String topic, String tags, List<MessageExt> received) throws Exception {
        return started(Scenes.pusher(group, topic, tags), received);
    }

    private static DefaultMQPushConsumer started(DefaultMQPushConsumer consumer, List<MessageExt> received) throws Exception {
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            received.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Scenes.atEnd(consumer::shutdown);
        return consumer;
    }

    private static List<MessageExt> list() {
        return Collections.synchronizedList(new ArrayList<>());
    }

    private static void sayAll(List<MessageExt> received) {
        List<Scenes.Line> lines = new ArrayList<>();
        synchronized (received) {
            received.forEach(message -> lines.add(Scenes.seen(message)));
        }
        Scenes.sayAll(lines);
    }

    private static List<String> bodies(List<MessageExt> received) {
        List<String> bodies = new ArrayList<>();
        synchronized (received) {
            received.forEach(message -> bodies.add(Scenes.body(message)));
        }
        Collections.sort(bodies);
        return bodies;
    }

    static void push(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        Scenes.send(producer, topic, "A", 0, 10);
        List<MessageExt> received = list();
        started(group, topic, "*", received);
        Scenes.await(() -> received.size() >= 10);
        Scenes.send(producer, topic, "A", 10, 10);
        Scenes.await(() -> received.size() >= 20);
        sayAll(received);
    }

    static void orderly(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        Map<Integer, List<String>> orders = new ConcurrentHashMap<>();
        Map<Integer, AtomicInteger> inside = new ConcurrentHashMap<>();
        AtomicInteger overlapping = new AtomicInteger();
        AtomicInteger count = new AtomicInteger();
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (int member = 0; member < 2; member++) {
            DefaultMQPushConsumer consumer = Scenes.pusher(group, topic, "*");
            members.add(consumer);
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                int queue = context.getMessageQueue().getQueueId();
                AtomicInteger here = inside.computeIfAbsent(queue, key -> new AtomicInteger());
                overlapping.addAndGet(here.incrementAndGet() - 1);
                for (MessageExt message : messages) {
                    orders.computeIfAbsent(queue, key -> Collections.synchronizedList(new ArrayList<>())).add(Scenes.body(message));
                    count.incrementAndGet();
                }
                here.decrementAndGet();
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
            Scenes.atEnd(consumer::shutdown);
        }
        // A client that gives a queue away says its offset before it waits for its listener: what is consumed in between comes again.
        Scenes.await(() -> members.stream().allMatch(one -> shares(one, topic) == 2));
        for (int n = 0; n < 40; n++) {
            int of = n;
            producer.send(Scenes.message(topic, "A", n), (queues, message, argument) ->
                queues.stream().filter(queue -> queue.getQueueId() == of % Scenes.QUEUES).findFirst().get(), null);
        }
        Scenes.await(() -> count.get() >= 40);
        Scenes.say(new Scenes.Line().put("orders", orders).put("overlapping", overlapping.get()));
    }

    static void suspended(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        MessageQueue queue = Pulling.sorted(producer.fetchPublishMessageQueues(topic)).get(0);
        for (int n = 0; n < 4; n++) {
            producer.send(Scenes.message(topic, "A", n), queue);
        }
        List<String> order = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = Scenes.pusher(group, topic, "*");
        consumer.setSuspendCurrentQueueTimeMillis(100);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            String body = Scenes.body(messages.get(0));
            order.add(body + " " + messages.get(0).getReconsumeTimes());
            boolean again = body.equals("body 1") && messages.get(0).getReconsumeTimes() < 2;
            return again ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        Scenes.atEnd(consumer::shutdown);
        Scenes.await(() -> order.size() >= 6);
        Scenes.say(new Scenes.Line().put("order", order));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void broadcasting(DefaultMQPushConsumer consumer) throws Exception {
        for (java.lang.reflect.Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) { // its package is another one in 5.x
                method.invoke(consumer, Enum.valueOf((Class) method.getParameterTypes()[0], "BROADCASTING"));
            }
        }
    }

    static void broadcast(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        List<List<MessageExt>> all = new ArrayList<>();
        for (int member = 0; member < 2; member++) {
            DefaultMQPushConsumer consumer = Scenes.pusher(group, topic, "*");
            broadcasting(consumer);
            all.add(list());
            started(consumer, all.get(member));
        }
        Scenes.send(producer, topic, "A", 0, 12);
        for (List<MessageExt> received : all) {
            Scenes.await(() -> received.size() >= 12);
            Scenes.say(new Scenes.Line().put("bodies", bodies(received)));
        }
    }

    static void members(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        List<MessageExt> first = list(), second = list();
        DefaultMQPushConsumer one = started(group, topic, "*", first);
        DefaultMQPushConsumer other = started(group, topic, "*", second);
        Scenes.await(() -> shares(one, topic) == 2 && shares(other, topic) == 2);
        Scenes.say(new Scenes.Line().put("shares", shares(one, topic) + " and " + shares(other, topic)));
        Scenes.send(producer, topic, "A", 0, 40);
        Scenes.await(() -> first.size() + second.size() >= 40);
        List<MessageExt> both = list();
        both.addAll(first);
        both.addAll(second);
        Scenes.say(new Scenes.Line().put("bodies", bodies(both)).put("first", first.size()).put("second", second.size()));
        other.shutdown();
        Scenes.await(() -> shares(one, topic) == 4);
        Scenes.say(new Scenes.Line().put("shares", shares(one, topic)));
        Scenes.send(producer, topic, "A", 40, 8);
        Scenes.await(() -> first.size() + second.size() >= 48);
        Scenes.say(new Scenes.Line().put("all after", first.size() + second.size() >= 48));
    }

    private static long shares(DefaultMQPushConsumer consumer, String topic) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(topic)).count();
    }

    private static long consumed(DefaultMQPushConsumer consumer, String topic) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(topic))
            .mapToLong(queue -> consumer.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_MEMORY)).sum();
    }

    static void restart(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        DefaultMQPullConsumer reader = Scenes.puller(group + "-readers");
        for (int life = 0; life < 3; life++) {
            Scenes.send(producer, topic, "A", life * 12, 12);
            List<MessageExt> received = list();
            DefaultMQPushConsumer consumer = started(group, topic, "*", received);
            Scenes.await(() -> received.size() >= 12);
            long all = (life + 1) * 12; // what the listener has given back is counted a moment later
            Scenes.await(() -> consumed(consumer, topic) == all);
            consumer.shutdown(); // which tells the broker how far it came
            Scenes.say(new Scenes.Line().put("life", life).put("bodies", bodies(received)));
        }
        Scenes.say(new Scenes.Line().put("stored", Scenes.count(reader, topic)));
    }

    static void tags(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        for (int n = 0; n < 16; n++) {
            producer.send(Scenes.message(topic, new String[] {"A", "B", "C", null}[n % 4], n));
        }
        List<MessageExt> some = list(), all = list();
        started(group, topic, "A || C", some);
        started(group + "-all", topic, "*", all);
        Scenes.await(() -> some.size() >= 8 && all.size() >= 16);
        Scenes.say(new Scenes.Line().put("some", bodies(some)).put("all", bodies(all)));
    }

    static void delay(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        List<MessageExt> received = list();
        Map<String, Long> arrivals = new ConcurrentHashMap<>(), sent = new TreeMap<>();
        DefaultMQPushConsumer consumer = Scenes.pusher(group, topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> arrivals.put(Scenes.body(message), System.currentTimeMillis()));
            received.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Scenes.atEnd(consumer::shutdown);
        for (int n = 0; n < 6; n++) {
            Message message = Scenes.message(topic, "A", n);
            message.setDelayTimeLevel(n % 3); // none, one second, two seconds
            sent.put("body " + n, System.currentTimeMillis());
            Scenes.say(new Scenes.Line().put("status", producer.send(message).getSendStatus().name()));
        }
        Scenes.await(() -> received.size() >= 6);
        sayAll(received);
        for (int n = 0; n < 6; n++) {
            long waited = arrivals.get("body " + n) - sent.get("body " + n);
            Scenes.say(new Scenes.Line().put("n", n).put("in time", waited >= n % 3 * 1000L));
        }
    }

    static void retry(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        List<MessageExt> received = list();
        DefaultMQPushConsumer consumer = Scenes.pusher(group, topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            received.addAll(messages);
            boolean again = messages.get(0).getReconsumeTimes() < 2;
            return again ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Scenes.atEnd(consumer::shutdown);
        Scenes.send(producer, topic, "A", 0, 2);
        Scenes.await(() -> received.size() >= 6);
        sayAll(received);
    }

    static void dead(String topic, String group) throws Exception {
        DefaultMQProducer producer = Scenes.producer(group);
        DefaultMQPullConsumer reader = Scenes.puller(group + "-readers");
        List<MessageExt> received = list();
        DefaultMQPushConsumer consumer = Scenes.pusher(group, topic, "*");
        consumer.setMaxReconsumeTimes(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            received.addAll(messages);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        Scenes.atEnd(consumer::shutdown);
        Scenes.send(producer, topic, "A", 0, 1);
        Scenes.await(() -> received.size() >= 2);
        String broker = producer.fetchPublishMessageQueues(topic).get(0).getBrokerName();
        MessageQueue letters = new MessageQueue("%DLQ%" + group, broker, 0);
        Scenes.await(() -> has(reader, letters));
        sayAll(received);
        Scenes.say(new Scenes.Line().put("dead letters", reader.maxOffset(letters)));
        List<MessageExt> dead = new ArrayList<>();
        Scenes.await(() -> {
            try {
                dead.addAll(producer.queryMessage("%DLQ%" + group, "key0", 32, 0, Long.MAX_VALUE).getMessageList());
            } catch (MQClientException error) {
                return false; // it is not in the index yet
            }
            return !dead.isEmpty();
        });
        sayAll(dead);
    }

    private static boolean has(DefaultMQPullConsumer reader, MessageQueue queue) throws Exception {
        try {
            return reader.maxOffset(queue) >= 1;
        } catch (MQClientException error) {
            return false; // the first message there makes the topic
        }
    }
}
