import java.time.Duration;
import java.util.Arrays;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * q11: the sessions of a bidder in one row of a cached store with a changelog. The DSL's session
 * windows write a new key for every bid, since a session's end is part of its key, and look through
 * every end within the gap to find it: they are many times slower on this query.
 *
 * <p>Every change is given out at once, as what it takes back and what it puts in its place.
 */
final class NexmarkStreamsSessions implements Processor<Long, byte[], Void, Void> {
    static final String STORE = "sessions";
    private static final int FIELDS = 3; // start, last, count

    private final long gapMs;
    private final long graceMs;
    private NexmarkSums sums;
    private KeyValueStore<Long, long[]> store;
    private long latestMs;

    NexmarkStreamsSessions(Duration gap, Duration grace) {
        gapMs = gap.toMillis();
        graceMs = grace.toMillis();
    }

    static void addStore(StreamsBuilder builder, boolean memory, Serde<long[]> sessions) {
        var supplier =
                memory ? Stores.inMemoryKeyValueStore(STORE) : Stores.persistentKeyValueStore(STORE);
        builder.addStateStore(
                Stores.keyValueStoreBuilder(supplier, Serdes.Long(), sessions).withCachingEnabled());
    }

    @Override
    public void init(ProcessorContext<Void, Void> context) {
        store = context.getStateStore(STORE);
        sums = new NexmarkSums(4);
    }

    @Override
    public void process(Record<Long, byte[]> record) {
        long time = record.timestamp();
        latestMs = Math.max(latestMs, time);
        if (time + gapMs + graceMs <= latestMs) {
            return; // late: the sums will tell
        }
        long bidder = record.key();
        long[] known = store.get(bidder);
        long[] kept = known == null ? new long[FIELDS] : Arrays.copyOf(known, known.length + FIELDS);
        int end = 0;
        long start = time;
        long last = time;
        long count = 1;
        for (int at = 0; at < kept.length - FIELDS; at += FIELDS) {
            if (kept[at] - gapMs <= time && time <= kept[at + 1] + gapMs) {
                start = Math.min(start, kept[at]);
                last = Math.max(last, kept[at + 1]);
                count += kept[at + 2];
                give(-1, bidder, kept[at], kept[at + 1], kept[at + 2]);
            } else if (kept[at + 1] + gapMs + graceMs > latestMs) {
                System.arraycopy(kept, at, kept, end, FIELDS);
                end += FIELDS;
            }
        }
        kept[end] = start;
        kept[end + 1] = last;
        kept[end + 2] = count;
        give(1, bidder, start, last, count);
        store.put(bidder, Arrays.copyOf(kept, end + FIELDS));
    }

    private void give(int sign, long bidder, long start, long last, long count) {
        sums.rows(sign);
        sums.add(0, sign * bidder);
        sums.add(1, sign * count);
        sums.add(2, sign * start);
        sums.add(3, sign * (last + gapMs));
    }
}
