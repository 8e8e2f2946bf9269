import java.net.URI;
import java.util.HashMap;
import java.util.Map;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;

/**
 * Writes what changed to Redis or Valkey: one hash a window, {@code {prefix}:start}, with the
 * absolute count and the time of the write by campaign. Counts are absolute, so that a repeat
 * changes nothing; one command a window, many windows a round trip. For one thread.
 */
final class YsbStore implements AutoCloseable {
    private final Jedis client;
    private final String prefix;
    private final Map<Long, Map<String, Long>> due = new HashMap<>();
    private long results;

    YsbStore(String url, String prefix) {
        client = new Jedis(URI.create(url));
        this.prefix = "{" + prefix + "}:";
    }

    /** Notes a count to be written by the next {@link #flush}. */
    void put(long startMs, String campaign, long seen) {
        due.computeIfAbsent(startMs, start -> new HashMap<>()).put(campaign, seen);
    }

    /** Whether there is anything to write. */
    boolean isDue() {
        return !due.isEmpty();
    }

    /** Windows that wait for a write. */
    int windows() {
        return due.size();
    }

    /** Returns when all that was noted is in the store. */
    void flush() {
        if (due.isEmpty()) {
            return;
        }
        String now = "," + System.currentTimeMillis();
        try (Pipeline pipeline = client.pipelined()) {
            due.forEach((start, counts) -> {
                Map<String, String> fields = new HashMap<>();
                counts.forEach((campaign, seen) -> fields.put(campaign, seen + now));
                pipeline.hset(prefix + start, fields);
                results += fields.size();
            });
            pipeline.syncAndReturnAll().stream()
                    .filter(RuntimeException.class::isInstance)
                    .forEach(error -> {
                        throw (RuntimeException) error;
                    });
        }
        due.clear();
        Finish.result();
    }

    /** Counts written so far, repeats included. */
    long results() {
        return results;
    }

    @Override
    public void close() {
        client.close();
    }
}
