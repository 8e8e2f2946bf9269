import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;

/**
 * What the rows of a query's output add up to, column by column; of one thread, all of them are
 * added together in the end. Times count in milliseconds, strings by their length.
 */
final class NexmarkSums {
    private static final List<NexmarkSums> ALL = new CopyOnWriteArrayList<>();
    private final long[] sums;
    private long rows;

    NexmarkSums(int columns) {
        sums = new long[columns];
        ALL.add(this);
    }

    void row() {
        rows++;
    }

    /** Rows given out, or taken back if negative. */
    void rows(long more) {
        rows += more;
    }

    void add(int column, long value) {
        sums[column] += value;
    }

    /** The sums of all threads by the names of the columns, after the number of rows. */
    static Map<String, Long> all(String... names) {
        Map<String, Long> all = new LinkedHashMap<>();
        all.put("rows", ALL.stream().mapToLong(one -> one.rows).sum());
        for (int n = 0; n < names.length; n++) {
            int column = n;
            all.put(names[n], ALL.stream().mapToLong(one -> one.sums[column]).sum());
        }
        return all;
    }
}
