import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;

/**
 * The one run of this process: its clock, what it consumed, and the line that the benchmark reads
 * (the same as {@code contenders/finish.py} prints).
 *
 * <p>The clock starts with the first record that any {@link Counter} sees and ends with the last
 * {@link #result}, or with {@link #stop} where the program goes on after it.
 */
final class Finish {
    private static final long WARM_UP = Long.getLong("bench.warm_up");
    private static final AtomicBoolean STARTED = new AtomicBoolean();
    private static final AtomicLong TOTAL = new AtomicLong();
    private static final List<Counter> COUNTERS = new CopyOnWriteArrayList<>();
    private static volatile long startNs;
    private static volatile long startCpuNs;
    private static volatile long warmNs;
    private static volatile long warmTotal;
    private static volatile long stopNs;
    private static volatile long stopCpuNs;
    private static Map<String, Long> sums = Map.of();

    private Finish() {}

    /** Counts the records of one thread; its owner calls it for every record. */
    static final class Counter {
        private static final int PARTITIONS_MAX = 64;
        private final long[] consumed = new long[PARTITIONS_MAX];
        private final int stride;
        private int untold;
        private boolean first = true;

        /** Adds to the total after every {@code stride} records: 1 is exact, more is cheaper. */
        Counter(int stride) {
            this.stride = stride;
            COUNTERS.add(this);
        }

        /** Returns the total of all threads when it was told now, else -1. */
        long record(int partition) {
            if (first) {
                first = false;
                start();
            }
            consumed[partition]++;
            if (++untold < stride) {
                return -1;
            }
            untold = 0;
            return told(stride);
        }
    }

    private static void start() {
        if (STARTED.compareAndSet(false, true)) {
            startCpuNs = cpuNs();
            startNs = System.nanoTime();
        }
    }

    private static long told(int records) {
        long total = TOTAL.addAndGet(records);
        if (total >= WARM_UP && total - records < WARM_UP) {
            warmNs = System.nanoTime();
            warmTotal = total;
        }
        return total;
    }

    /** Notes that a result is there; cheap. */
    static void result() {
        stopNs = System.nanoTime();
    }

    /** Notes that the last result is there: what follows counts in no figure. */
    static void stop() {
        result();
        stopCpuNs = cpuNs();
    }

    /** Sets what the columns of the results add up to; before {@link #say}. */
    static void sums(Map<String, Long> given) {
        sums = given;
    }

    /** Prints the line. {@code count} and {@code cost} are null where a query has no such totals. */
    static void say(Long count, Long cost, long dropped, long results) {
        double cpuS = ((stopCpuNs > 0 ? stopCpuNs : cpuNs()) - startCpuNs) / 1e9;
        Map<Integer, Long> consumed = consumed();
        long events = consumed.values().stream().mapToLong(Long::longValue).sum();
        boolean steady = warmTotal > 0 && events > warmTotal;
        StringBuilder partitions = new StringBuilder();
        consumed.forEach((p, n) ->
                partitions.append(partitions.isEmpty() ? "" : ",").append("\"" + p + "\":" + n));
        System.out.printf(
                Locale.ROOT,
                "{\"seconds\":%.6f,\"cpu_s\":%.6f,\"consumed\":{%s},\"count\":%s,\"cost_micros\":%s,"
                        + "\"rss_peak_mib\":%d,\"steady_events\":%s,\"steady_s\":%s,"
                        + "\"dropped\":%d,\"results\":%d,\"sums\":{%s}}%n",
                (stopNs - startNs) / 1e9,
                cpuS,
                partitions,
                count,
                cost,
                rssPeakMib(),
                steady ? events - warmTotal : null,
                steady ? (stopNs - warmNs) / 1e9 : null,
                dropped,
                results,
                sums.entrySet().stream()
                        .map(sum -> "\"" + sum.getKey() + "\":" + sum.getValue())
                        .collect(Collectors.joining(",")));
        System.out.flush();
    }

    /** Records by partition, of all threads; exact once they have ended. */
    static Map<Integer, Long> consumed() {
        Map<Integer, Long> sum = new TreeMap<>();
        for (Counter counter : COUNTERS) {
            for (int p = 0; p < Counter.PARTITIONS_MAX; p++) {
                if (counter.consumed[p] > 0) {
                    sum.merge(p, counter.consumed[p], Long::sum);
                }
            }
        }
        return sum;
    }

    private static long cpuNs() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime();
    }

    private static long rssPeakMib() {
        try {
            for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
                if (line.startsWith("VmHWM:")) {
                    return Long.parseLong(line.replaceAll("\\D", "")) / 1024;
                }
            }
        } catch (IOException noProc) {
            return 0; // not Linux
        }
        return 0;
    }
}
