import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;

/**
 * RocketMQ's own broker, started as its own main does it. For each line on standard input a slave asks its master for
 * its tables: what its timer does every 10 seconds in 4.9, and every 60 seconds in 5.x.
 */
public class Broker {
    public static void main(String[] arguments) throws Exception {
        BrokerController controller = BrokerStartup.start(BrokerStartup.createBrokerController(arguments));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        while (in.readLine() != null) {
            controller.getSlaveSynchronize().syncAll();
        }
    }
}
