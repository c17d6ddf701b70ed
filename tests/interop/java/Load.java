import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * RocketMQ's own producer, sending one numbered message after the other until its standard input ends, whatever becomes
 * of its broker; for every number one JSON line: {"n": N, "status": "SEND_OK"} or {"n": N, "error": "..."}.
 * Nothing is sent twice: a message without an answer is there once or not at all.
 *
 * Arguments: the address of the name server, the topic, microseconds between messages.
 */
public class Load {
    private static volatile boolean ended;

    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop-load");
        producer.setNamesrvAddr(arguments[0]);
        producer.setVipChannelEnabled(false);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setPollNameServerInterval(1000);
        producer.setSendMsgTimeout(5000);
        producer.start();
        Thread end = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException error) {
                error.printStackTrace();
            }
            ended = true;
        });
        end.setDaemon(true);
        end.start();
        long pause = Long.parseLong(arguments[2]);
        for (int n = 0; !ended; n++) {
            String outcome;
            long pauseNow = pause;
            try {
                SendResult sent = producer.send(message(arguments[1], n));
                outcome = "\"status\": \"" + sent.getSendStatus().name() + "\"";
            } catch (Exception error) {
                outcome = "\"error\": \"" + error.toString().replaceAll("[^ -~]|[\"\\\\]", " ") + "\"";
                pauseNow = 50_000;
            }
            byte[] line = ("{\"n\": " + n + ", " + outcome + "}\n").getBytes(StandardCharsets.UTF_8);
            System.out.write(line, 0, line.length);
            System.out.flush();
            LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(pauseNow));
        }
        Runtime.getRuntime().halt(0);
    }

    /** What message number `n` holds: the test works out the same. */
    static Message message(String topic, int n) {
        byte[] body = ("body " + n + " é消").repeat(1 + n % 97).getBytes(StandardCharsets.UTF_8);
        Message message = new Message(topic, "Tag" + n % 3, "key" + n, body);
        message.putUserProperty("n", "" + n);
        return message;
    }
}
