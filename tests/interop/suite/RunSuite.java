import java.io.PrintStream;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs the test classes that are its arguments, one after the other. On standard output: "CLASS name" when one begins,
 * "TEST method(class)" when one of its tests does, for each of its tests "PASS|FAIL|SKIP milliseconds method(class)", behind a failure " :: " and its first line, and
 * "END name" when the class is through. A test that prints a stack trace with the words of the system property
 * suite.refused ends there and then, as failed with them: what the broker does not do would be waited for in vain.
 */
public class RunSuite {
    private static final int REASON_LENGTH = 200;

    public static void main(String[] classes) throws Exception {
        String refused = System.getProperty("suite.refused");
        if (refused != null) {
            System.setErr(new RefusalStream(System.err, refused));
        }
        for (String name : classes) {
            say("CLASS " + name);
            JUnitCore runner = new JUnitCore();
            runner.addListener(new Outcomes());
            try {
                runner.run(Class.forName(name));
            } catch (Throwable error) {
                say("FAIL 0 " + name + " :: " + reason(error));
            }
            say("END " + name);
        }
        Runtime.getRuntime().halt(0); // clients that a test left behind keep threads
    }

    /** No test catches it: they catch exceptions. */
    private static class Refused extends Error {
        Refused(String said) {
            super(said);
        }
    }

    private static class RefusalStream extends PrintStream {
        private final String refused;

        RefusalStream(PrintStream of, String refused) {
            super(of, true);
            this.refused = refused;
        }

        @Override
        public void println(Object printed) { // what printStackTrace begins with
            super.println(printed);
            if (printed instanceof Exception && String.valueOf(printed).contains(refused)) {
                throw new Refused(String.valueOf(printed));
            }
        }
    }

    private static class Outcomes extends RunListener {
        private long begun = System.nanoTime();
        private Failure failure;

        @Override
        public void testStarted(Description test) {
            begun = System.nanoTime();
            failure = null;
            say("TEST " + test.getDisplayName());
        }

        @Override
        public void testFailure(Failure failed) {
            if (failed.getDescription().isTest()) {
                failure = failed;
            } else {
                say(line("FAIL", failed.getDescription()) + " :: " + reason(failed.getException()));
            }
        }

        @Override
        public void testAssumptionFailure(Failure failed) {
            testFailure(failed);
        }

        @Override
        public void testIgnored(Description test) {
            begun = System.nanoTime();
            say(line("SKIP", test));
        }

        @Override
        public void testFinished(Description test) {
            say(failure == null ? line("PASS", test) : line("FAIL", test) + " :: " + reason(failure.getException()));
        }

        private String line(String outcome, Description test) {
            return outcome + " " + (System.nanoTime() - begun) / 1_000_000 + " " + test.getDisplayName();
        }
    }

    private static String reason(Throwable error) {
        String text = String.valueOf(error).replaceAll("\\s+", " ");
        return text.length() > REASON_LENGTH ? text.substring(0, REASON_LENGTH) : text;
    }

    private static synchronized void say(String line) {
        System.out.print("\n" + line + "\n");
        System.out.flush();
    }
}
