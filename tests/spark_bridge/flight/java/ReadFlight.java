import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.arrow.flight.CallOption;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.auth2.BearerCredentialWriter;
import org.apache.arrow.flight.grpc.CredentialCallOption;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VarBinaryVector;

/** Prints what a request gives: "queueId queueOffset body", or the status and text of its refusal. */
public final class ReadFlight {
    public static void main(String[] arguments) throws Exception {
        Location at = Location.forGrpcInsecure(arguments[0], Integer.parseInt(arguments[1]));
        CallOption token = new CredentialCallOption(new BearerCredentialWriter(arguments[2]));
        FlightDescriptor request = FlightDescriptor.command(arguments[3].getBytes(StandardCharsets.UTF_8));
        try (BufferAllocator allocator = new RootAllocator();
                FlightClient client = FlightClient.builder(allocator, at).build()) {
            for (FlightEndpoint endpoint : client.getInfo(request, token).getEndpoints()) {
                try (FlightStream stream = client.getStream(endpoint.getTicket(), token)) {
                    while (stream.next()) {
                        IntVector queues = (IntVector) stream.getRoot().getVector("queueId");
                        BigIntVector offsets = (BigIntVector) stream.getRoot().getVector("queueOffset");
                        VarBinaryVector bodies = (VarBinaryVector) stream.getRoot().getVector("body");
                        for (int row = 0; row < stream.getRoot().getRowCount(); row++) {
                            String body = HexFormat.of().formatHex(bodies.get(row));
                            System.out.println(queues.get(row) + " " + offsets.get(row) + " " + body);
                        }
                    }
                }
            }
        } catch (FlightRuntimeException refused) {
            System.out.println(refused.status().code() + " " + refused.status().description());
        }
    }
}
