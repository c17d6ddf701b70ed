import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** What RocketMQ reads of JSON texts: a line of input is a class's name and a text in base64, a line of output its value. */
public class Reading {
    private static final String[] PACKAGES = {
        "org.apache.rocketmq.remoting.protocol.heartbeat.", "org.apache.rocketmq.common.protocol.heartbeat.",
        "org.apache.rocketmq.remoting.protocol.body.", "org.apache.rocketmq.common.protocol.body.",
        "org.apache.rocketmq.remoting.protocol.subscription.", "org.apache.rocketmq.common.subscription.",
        "org.apache.rocketmq.remoting.protocol.route.", "org.apache.rocketmq.common.protocol.route.",
        "org.apache.rocketmq.common."};
    private static final String HEADER = "RemotingCommand";
    private static final int NAME_FIELDS_DEPTH = 12;

    private Reading() {
    }

    /** Answers each line until the input ends. */
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err); // what libraries log
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", -1);
            out.println(answer(parts[0], Base64.getDecoder().decode(parts[1])));
        }
    }

    private static String answer(String name, byte[] text) {
        StringBuilder to = new StringBuilder();
        try {
            write(name.equals(HEADER) ? header(text) : RemotingSerializable.decode(text, of(name)), to, 0);
        } catch (Throwable reason) {
            to.setLength(0);
            to.append("{\"error\":");
            quote(String.valueOf(reason), to);
            to.append('}');
        }
        return to.toString();
    }

    private static Class<?> of(String name) throws ClassNotFoundException {
        if (name.equals("Object")) {
            return Object.class;
        }
        for (String before : PACKAGES) {
            try {
                return Class.forName(before + name);
            } catch (ClassNotFoundException elsewhere) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static Object header(byte[] text) throws Exception {
        ByteBuffer frame = ByteBuffer.allocate(4 + text.length);
        frame.putInt(text.length).put(text).flip();
        RemotingCommand command = RemotingCommand.decode(frame);
        TreeMap<String, Object> fields = new TreeMap<>();
        fields.put("code", command.getCode());
        fields.put("language", command.getLanguage());
        fields.put("version", command.getVersion());
        fields.put("opaque", command.getOpaque());
        fields.put("flag", command.getFlag());
        fields.put("remark", command.getRemark());
        fields.put("extFields", command.getExtFields());
        return fields;
    }

    private static void write(Object value, StringBuilder to, int depth) throws Exception {
        if (depth > NAME_FIELDS_DEPTH) {
            throw new IllegalStateException("too deep to be written");
        }
        if (value == null || value instanceof Boolean || value instanceof Number) {
            to.append(value);
        } else if (value instanceof Map) {
            TreeMap<String, Object> entries = new TreeMap<>();
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                entries.put(text(entry.getKey()), entry.getValue());
            }
            fields(entries, to, depth);
        } else if (value instanceof Collection) {
            List<String> items = new ArrayList<>();
            for (Object item : (Collection<?>) value) {
                StringBuilder one = new StringBuilder();
                write(item, one, depth + 1);
                items.add(one.toString());
            }
            if (value instanceof Set) {
                Collections.sort(items);
            }
            to.append('[').append(String.join(",", items)).append(']');
        } else if (value.getClass().getName().startsWith("org.apache.rocketmq") && !(value instanceof Enum)) {
            fields(fieldsOf(value), to, depth);
        } else {
            quote(text(value), to);
        }
    }

    private static String text(Object value) throws Exception {
        if (value != null && value.getClass().getName().endsWith(".MessageQueue")) {
            StringBuilder to = new StringBuilder();
            fields(fieldsOf(value), to, 0);
            return to.toString();
        }
        return value instanceof Enum ? ((Enum<?>) value).name() : String.valueOf(value);
    }

    private static void fields(Map<String, Object> entries, StringBuilder to, int depth) throws Exception {
        char before = '{';
        for (Map.Entry<String, Object> entry : entries.entrySet()) {
            to.append(before);
            quote(entry.getKey(), to);
            to.append(':');
            write(entry.getValue(), to, depth + 1);
            before = ',';
        }
        to.append(before == '{' ? "{}" : "}");
    }

    private static Map<String, Object> fieldsOf(Object value) throws Exception {
        TreeMap<String, Object> entries = new TreeMap<>();
        for (Class<?> of = value.getClass(); of != Object.class; of = of.getSuperclass()) {
            for (Field field : of.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers())) {
                    field.setAccessible(true);
                    entries.put(field.getName(), field.get(value));
                }
            }
        }
        return entries;
    }

    private static void quote(String text, StringBuilder to) {
        to.append('"');
        for (int index = 0; index < text.length(); index++) {
            char one = text.charAt(index);
            if (one < ' ' || one > '~' || one == '"' || one == '\\') {
                to.append(String.format("\\u%04x", (int) one));
            } else {
                to.append(one);
            }
        }
        to.append('"');
    }
}
