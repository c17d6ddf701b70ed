import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.offset.GetConsumerStatusCommand;

/**
 * RocketMQ's own mqadmin: each line on standard input is a command with its arguments, run as mqadmin's own main runs
 * it; behind what it prints comes a line of its own, "=== done".
 */
public class Admin {
    public static void main(String[] arguments) throws Exception {
        Thread main = Thread.currentThread();
        Thread watcher = new Thread(() -> hurry(main));
        watcher.setDaemon(true);
        watcher.start();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            for (Field field : MQAdminStartup.class.getDeclaredFields()) {
                if (field.getType() == List.class) { // of commands, some of which keep their connections to a cluster
                    field.setAccessible(true);
                    ((List<?>) field.get(null)).clear();
                }
            }
            MQAdminStartup.initCommand(new GetConsumerStatusCommand()); // published, but main does not know it
            MQAdminStartup.main0(line.trim().split(" "), null);
            System.out.print("\n=== done\n");
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** A client of 5.x ends when a thread of it has waited three seconds for an event: it need not wait. */
    private static void hurry(Thread main) {
        while (true) {
            LockSupport.parkNanos(20_000_000);
            for (StackTraceElement frame : main.getStackTrace()) {
                if (frame.getMethodName().equals("shutdown") && frame.getClassName().endsWith("ServiceThread")) {
                    Thread.getAllStackTraces().keySet().stream()
                        .filter(thread -> thread.getName().contains("NettyEventExecutor")).forEach(Thread::interrupt);
                }
            }
        }
    }
}
