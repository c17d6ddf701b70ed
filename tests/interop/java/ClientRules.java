import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.consumer.store.LocalFileOffsetStore;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Rules of RocketMQ's client that need no broker: commands as in Commands, each answered with one JSON line. */
public class ClientRules {
    private ClientRules() {
    }

    public static void main(String[] arguments) throws Exception {
        Commands.serve((name, options) -> {
            if (name.equals("share")) {
                Commands.say("{\"shares\": " + shares(options) + "}");
            } else if (name.equals("keep")) {
                keep(options);
            } else if (name.equals("kept")) {
                Commands.say("{\"offset\": " + kept(options) + "}");
            } else if (name.equals("sign")) {
                Commands.say("{\"signature\": " + Commands.quoted(signature(options)) + "}");
            } else {
                throw new IllegalArgumentException(name);
            }
        });
    }

    /** The queues of each member, by their indexes: 0 is the first of the sorted queues. */
    private static List<List<Integer>> shares(Map<String, String> options) {
        List<MessageQueue> queues = queues(options.get("queues"));
        List<String> members = new ArrayList<>(Arrays.asList(options.get("members").split(",")));
        Collections.sort(members); // as RebalanceImpl does
        AllocateMessageQueueStrategy strategy = strategy(options.get("strategy"), options.get("option"), queues);
        List<List<Integer>> shares = new ArrayList<>();
        for (String member : members) {
            List<Integer> share = new ArrayList<>();
            for (MessageQueue queue : strategy.allocate("group", member, queues, members)) {
                share.add(queues.indexOf(queue));
            }
            shares.add(share);
        }
        return shares;
    }

    /** The signature that a client with these credentials adds; all texts are in base64. */
    private static String signature(Map<String, String> options) {
        RemotingCommand request = RemotingCommand.createRequestCommand(0, null);
        for (String pair : options.get("fields").split(",")) {
            String[] parts = pair.split(":", -1);
            request.addExtField(text(parts[0]), text(parts[1]));
        }
        byte[] body = Base64.getDecoder().decode(options.get("body"));
        request.setBody(body.length == 0 ? null : body);
        SessionCredentials credentials = new SessionCredentials();
        credentials.setAccessKey(text(options.get("access_key")));
        credentials.setSecretKey(text(options.get("secret_key")));
        if (options.containsKey("security_token")) {
            credentials.setSecurityToken(text(options.get("security_token")));
        }
        new AclClientRPCHook(credentials).doBeforeRequest("127.0.0.1:1", request);
        return request.getExtFields().get(SessionCredentials.SIGNATURE);
    }

    /** Writes the offsets of a broadcasting group: queue i of a topic has the offset that many, then 10 more. */
    private static void keep(Map<String, String> options) throws Exception {
        OffsetStore store = offsets(options);
        Set<MessageQueue> queues = new HashSet<>(queues(options.get("queues")));
        for (MessageQueue queue : queues) {
            store.updateOffset(queue, Long.parseLong(options.get("offset")) + 10 * queue.getQueueId(), false);
        }
        store.persistAll(queues);
    }

    /** The offsets that a Java consumer of the group would begin at, -1 for a queue of which it knows none. */
    private static List<Long> kept(Map<String, String> options) throws Exception {
        OffsetStore store = offsets(options);
        List<Long> offsets = new ArrayList<>();
        for (MessageQueue queue : queues(options.get("queues"))) {
            offsets.add(store.readOffset(queue, ReadOffsetType.MEMORY_FIRST_THEN_STORE));
        }
        return offsets;
    }

    private static OffsetStore offsets(Map<String, String> options) throws Exception {
        MQClientInstance client = new MQClientInstance(new ClientConfig(), 0, options.get("client"));
        OffsetStore store = new LocalFileOffsetStore(client, options.get("group"));
        store.load();
        return store;
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    private static List<MessageQueue> queues(String text) {
        List<MessageQueue> queues = new ArrayList<>();
        for (String part : text.split(",")) { // topic:broker:number of queues
            String[] parts = part.split(":");
            for (int id = 0; id < Integer.parseInt(parts[2]); id++) {
                queues.add(new MessageQueue(parts[0], parts[1], id));
            }
        }
        Collections.sort(queues);
        return queues;
    }

    private static AllocateMessageQueueStrategy strategy(String name, String option, List<MessageQueue> queues) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(Integer.parseInt(option));
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(new HashSet<>(Arrays.asList(option.split(","))));
                return byRoom;
            case "CONFIG":
                AllocateMessageQueueByConfig byConfig = new AllocateMessageQueueByConfig();
                List<MessageQueue> chosen = new ArrayList<>();
                for (int at = 0; at < queues.size(); at += Integer.parseInt(option)) {
                    chosen.add(queues.get(at));
                }
                byConfig.setMessageQueueList(chosen);
                return byConfig;
            case "MACHINE_ROOM_NEARBY":
                return new AllocateMachineRoomNearby(strategy(option, "10", queues), new Rooms());
            default:
                throw new IllegalArgumentException(name);
        }
    }

    /** Brokers are named ROOM@NAME or NAME, members ROOM-NAME or NAME; a bare name is a room, too. */
    private static class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("@")[0];
        }

        @Override
        public String consumerDeployIn(String member) {
            return member.split("-")[0];
        }
    }
}
