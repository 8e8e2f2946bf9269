import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * q7 within a partition, for which the DSL has no word: the bids that are the highest of their
 * window so far. The highest price is in a store with a changelog and, since every bid asks for
 * it, in memory too.
 */
final class NexmarkStreamsHighest implements FixedKeyProcessor<byte[], NexmarkBid, NexmarkBid> {
    static final String STORE = "highest";

    private final long windowMs;
    private final long latenessMs;
    private final TreeMap<Long, Long> highest = new TreeMap<>();
    private FixedKeyProcessorContext<byte[], NexmarkBid> context;
    private KeyValueStore<Long, Long> store;
    private long latestMs;

    NexmarkStreamsHighest(long windowMs, long latenessMs) {
        this.windowMs = windowMs;
        this.latenessMs = latenessMs;
    }

    static void addStore(StreamsBuilder builder, boolean memory) {
        var supplier =
                memory ? Stores.inMemoryKeyValueStore(STORE) : Stores.persistentKeyValueStore(STORE);
        builder.addStateStore(
                Stores.keyValueStoreBuilder(supplier, Serdes.Long(), Serdes.Long()).withCachingEnabled());
    }

    @Override
    public void init(FixedKeyProcessorContext<byte[], NexmarkBid> given) {
        context = given;
        store = given.getStateStore(STORE);
        try (var all = store.all()) {
            all.forEachRemaining(entry -> highest.put(entry.key, entry.value));
        }
    }

    @Override
    public void process(FixedKeyRecord<byte[], NexmarkBid> record) {
        NexmarkBid bid = record.value();
        long start = bid.dateTime - bid.dateTime % windowMs;
        if (start + windowMs + latenessMs <= latestMs) {
            return; // late: the sums will tell
        }
        if (bid.dateTime > latestMs) {
            latestMs = bid.dateTime;
            expire();
        }
        Long known = highest.get(start);
        if (known == null || bid.price > known) {
            highest.put(start, bid.price);
            store.put(start, bid.price);
        }
        if (known == null || bid.price >= known) {
            context.forward(record);
        }
    }

    private void expire() {
        Map.Entry<Long, Long> first = highest.firstEntry();
        while (first != null && first.getKey() + windowMs + latenessMs <= latestMs) {
            store.delete(first.getKey());
            highest.pollFirstEntry();
            first = highest.firstEntry();
        }
    }
}
