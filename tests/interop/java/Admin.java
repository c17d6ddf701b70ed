import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * RocketMQ's own mqadmin: each line on standard input is a command with its arguments, run as mqadmin's own main runs
 * it; behind what it prints comes a line of its own, "=== done".
 */
public class Admin {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            MQAdminStartup.main0(line.trim().split(" "), null);
            System.out.print("\n=== done\n");
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
