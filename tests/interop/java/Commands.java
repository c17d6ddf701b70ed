import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/**
 * Commands on standard input, one a line: "NAME key=value ..."; answers on standard output are JSON lines, the last one
 * of a command {"done": "NAME"} or {"failed": "NAME", "error": "..."}. The end of the input ends the program.
 */
final class Commands {
    private Commands() {
    }

    /** What does a command; what it throws is its failure. */
    interface Doer {
        void run(String name, Map<String, String> options) throws Throwable;
    }

    static void serve(Doer doer) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.trim().split(" ");
            try {
                Map<String, String> options = new HashMap<>();
                for (String word : Arrays.asList(words).subList(1, words.length)) {
                    int at = word.indexOf('=');
                    options.put(word.substring(0, at), word.substring(at + 1));
                }
                doer.run(words[0], options);
                say("{\"done\": " + quoted(words[0]) + "}");
            } catch (Throwable error) {
                Throwable cause = error instanceof InvocationTargetException ? error.getCause() : error;
                cause.printStackTrace();
                say("{\"failed\": " + quoted(words[0]) + ", \"error\": " + quoted(cause.toString()) + "}");
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static synchronized void say(String line) {
        byte[] bytes = (line + "\n").getBytes(StandardCharsets.UTF_8);
        System.out.write(bytes, 0, bytes.length);
        System.out.flush();
    }

    /** A text in JSON. */
    static String quoted(String text) {
        if (text == null) {
            return "null";
        }
        StringBuilder quoted = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                quoted.append('\\').append(each);
            } else if (each < 32) {
                quoted.append(String.format("\\u%04x", (int) each));
            } else {
                quoted.append(each);
            }
        }
        return quoted.append('"').toString();
    }
}
