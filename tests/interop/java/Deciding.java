import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Scenes of transactions, of requests with a reply, and of traces. */
@SuppressWarnings("deprecation")
class Deciding {
    private static class Listener implements TransactionListener {
        final LocalTransactionState first;
        final LocalTransactionState checked;
        final AtomicInteger checks = new AtomicInteger();
        final java.util.Set<String> bodies = java.util.concurrent.ConcurrentHashMap.newKeySet();
        final List<String> askedFor = Collections.synchronizedList(new ArrayList<>());

        Listener(LocalTransactionState first, LocalTransactionState checked) {
            this.first = first;
            this.checked = checked;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return first;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            checks.incrementAndGet();
            if (bodies.add(Scenes.body(message))) { // a busy machine's broker asks again before it is answered
                askedFor.add(Scenes.seen(message).put("times", "*").toString());
            }
            return checked;
        }
    }

    private static TransactionMQProducer producer(String group, Listener listener) throws Exception {
        TransactionMQProducer producer = Scenes.quick(new TransactionMQProducer(group + "-producers"));
        producer.setTransactionListener(listener);
        Scenes.started(producer);
        return producer;
    }

    private static void decided(String topic, String group, Listener listener, int seen) throws Exception {
        TransactionMQProducer producer = producer(group, listener);
        List<Scenes.Line> lines = new ArrayList<>();
        List<MessageExt> received = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = Scenes.pusher(group, topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            received.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Scenes.atEnd(consumer::shutdown);
        for (int n = 0; n < 3; n++) {
            TransactionSendResult sent = producer.sendMessageInTransaction(Scenes.message(topic, "A", n), null);
            Scenes.say(new Scenes.Line().put("status", sent.getSendStatus().name())
                .put("state", sent.getLocalTransactionState().name())
                .put("transaction is message", java.util.Objects.equals(sent.getTransactionId(), sent.getMsgId())));
        }
        Scenes.await(() -> received.size() >= seen && (listener.checked == null || listener.checks.get() >= 3));
        DefaultMQProducer other = Scenes.producer(group + "-other");
        Scenes.send(other, topic, "A", 100, 1); // whatever was decided before it is seen before it
        Scenes.await(() -> received.size() >= seen + 1);
        synchronized (received) {
            received.forEach(message -> lines.add(Scenes.seen(message)));
        }
        Scenes.sayAll(lines);
        if (listener.checked == null) {
            return; // on a busy machine the broker asks nevertheless
        }
        List<String> asked = new ArrayList<>(new java.util.TreeSet<>(listener.askedFor));
        Scenes.say(new Scenes.Line().put("checked", listener.checks.get() > 0).put("asked for", asked));
    }

    static void commit(String topic, String group) throws Exception {
        decided(topic, group, new Listener(LocalTransactionState.COMMIT_MESSAGE, null), 3);
    }

    static void rollback(String topic, String group) throws Exception {
        decided(topic, group, new Listener(LocalTransactionState.ROLLBACK_MESSAGE, null), 0);
    }

    static void check(String topic, String group) throws Exception {
        Listener listener = new Listener(LocalTransactionState.UNKNOW, LocalTransactionState.COMMIT_MESSAGE);
        decided(topic, group, listener, 3);
    }

    static void checkAndRollback(String topic, String group) throws Exception {
        Listener listener = new Listener(LocalTransactionState.UNKNOW, LocalTransactionState.ROLLBACK_MESSAGE);
        decided(topic, group, listener, 0);
    }

    static void request(String topic, String group) throws Exception {
        DefaultMQProducer asking = Scenes.producer(group);
        DefaultMQProducer replying = Scenes.producer(group + "-replies");
        List<String> outcomes = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = Scenes.pusher(group, topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    byte[] reply = ("reply to " + Scenes.body(message)).getBytes(StandardCharsets.UTF_8);
                    outcomes.add(replying.send(MessageUtil.createReplyMessage(message, reply), 60_000).getSendStatus().name());
                } catch (Exception error) {
                    outcomes.add("" + Scenes.failure(error));
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Scenes.atEnd(consumer::shutdown);
        for (int n = 0; n < 3; n++) {
            // The one that waits for its reply gives up in 5.3.3 as soon as the request is sent.
            List<Scenes.Line> replies = Collections.synchronizedList(new ArrayList<>());
            asking.request(Scenes.message(topic, "A", n), new RequestCallback() {
                @Override
                public void onSuccess(Message reply) {
                    if (reply != null && replies.isEmpty()) { // it also comes once the request is sent, with or without a reply
                        replies.add(Scenes.seen((MessageExt) reply));
                    }
                }

                @Override
                public void onException(Throwable error) {
                    replies.add(new Scenes.Line().put("error", error.getClass().getSimpleName()));
                }
            }, 30_000);
            Scenes.await(() -> !replies.isEmpty());
            Scenes.sayAll(replies);
        }
        Scenes.await(() -> outcomes.size() >= 3);
        Scenes.say(new Scenes.Line().put("replies", outcomes));
        try {
            asking.request(new Message(topic + "-nobody", "x".getBytes()), 1000);
        } catch (Exception error) {
            Scenes.say(new Scenes.Line().put("error", error.getClass().getSimpleName()));
        }
    }

    static void trace(String topic, String group) throws Exception {
        DefaultMQPullConsumer reader = Scenes.puller(group + "-readers");
        DefaultMQProducer producer = Scenes.started(Scenes.quick(new DefaultMQProducer(group, true, null)));
        Scenes.send(producer, topic, "A", 0, 3);
        Scenes.await(() -> Scenes.count(reader, "RMQ_SYS_TRACE_TOPIC") >= 1);
        List<MessageExt> traced = new ArrayList<>();
        for (org.apache.rocketmq.common.message.MessageQueue queue : reader.fetchSubscribeMessageQueues("RMQ_SYS_TRACE_TOPIC")) {
            long end = reader.maxOffset(queue);
            if (end > 0) {
                traced.addAll(reader.pull(queue, "*", 0, 32).getMsgFoundList());
            }
        }
        StringBuilder text = new StringBuilder();
        traced.forEach(message -> text.append(Scenes.body(message)));
        Scenes.say(new Scenes.Line().put("traces", text.toString().contains(topic)).put("kind", text.toString().split("\1")[0]));
    }
}
