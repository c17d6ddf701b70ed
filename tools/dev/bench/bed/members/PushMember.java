import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * Java's push consumer, with its default settings, as tools.dev.bench.bed.members.consume has the others.
 *
 *   PushMember NAMESRV TOPIC GROUP MESSAGES WARM SECONDS TIMED
 */
public class PushMember {
    static final int STAMP_BYTES = 20;
    static final long SETTLE_MS = 3000;

    static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    public static void main(String[] a) throws Exception {
        int messages = Integer.parseInt(a[3]), warm = Integer.parseInt(a[4]);
        double seconds = Double.parseDouble(a[5]);
        boolean timed = a[6].equals("1"), comesFirst = timed || seconds > 0;
        long[] taken = new long[timed ? messages : 0];
        AtomicInteger count = new AtomicInteger();
        AtomicLong beganNs = new AtomicLong(), beganCpu = new AtomicLong(), endedNs = new AtomicLong(), endedCpu = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(a[2]);
        consumer.setNamesrvAddr(a[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(a[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (some, context) -> {
            some.forEach(message -> {
                int number = count.incrementAndGet();
                long now = System.nanoTime();  // the kernel's monotonic clock, as Python's
                if (timed && number <= messages)
                    taken[number - 1] = now - Long.parseLong(new String(message.getBody(), 0, STAMP_BYTES));
                if (number == warm) { beganNs.set(now); beganCpu.set(cpu()); }
                if (number == messages) { endedNs.set(now); endedCpu.set(cpu()); done.countDown(); }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        if (comesFirst) { consumer.start(); Thread.sleep(SETTLE_MS); }
        System.out.println("ready");
        System.in.read();
        if (!comesFirst) consumer.start();
        if (seconds > 0) {
            long from = System.nanoTime(), before = cpu();
            Thread.sleep((long) (seconds * 1000));
            System.out.printf("{\"seconds\": %f, \"cpu_seconds\": %f}%n", (System.nanoTime() - from) / 1e9, (cpu() - before) / 1e9);
        } else {
            if (!done.await(120, TimeUnit.SECONDS)) throw new IllegalStateException(count + " of " + messages + " messages came");
            Thread.sleep(100);  // listeners of the last messages end
            long[] sorted = timed ? Arrays.copyOfRange(taken, warm, messages) : new long[]{0};
            Arrays.sort(sorted);
            System.out.printf("{\"messages\": %d, \"seconds\": %f, \"cpu_seconds\": %f, \"p50_us\": %f, \"p99_us\": %f}%n",
                messages - warm, (endedNs.get() - beganNs.get()) / 1e9, (endedCpu.get() - beganCpu.get()) / 1e9,
                sorted[sorted.length / 2] / 1e3, sorted[sorted.length * 99 / 100] / 1e3);
        }
        consumer.shutdown();
        System.exit(0);
    }
}
