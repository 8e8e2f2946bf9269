import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.processor.WallclockTimestampExtractor;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Nexmark's queries in Kafka Streams' DSL. Stores are cached and have changelogs, as by default.
 *
 * <p>The topic's key is the auction. So q5, q7 and q17 are folded without a repartition topic, and
 * the maxima of the partitions (q5, q7) are merged by whoever reads the results; q11 and q12 go
 * through a repartition topic by bidder. That topic mixes partitions read at different speeds, and
 * Kafka Streams has no watermark across them: with four seconds of grace q11 would drop bids, so
 * there sessions take bids for a day.
 */
final class NexmarkStreamsQueries {
    private static final Duration WINDOW = Duration.ofSeconds(10);
    private static final Duration SLIDE = Duration.ofSeconds(2);
    private static final Duration GAP = Duration.ofSeconds(10);
    private static final Duration LATENESS = Duration.ofSeconds(4);
    private static final Duration DAY = Duration.ofDays(1);
    private static final int PARTITIONS = 4;
    private static final byte[] ONE = {1};
    private static final int DAY_BYTES = "2023-11-14".length();

    private final String topic;
    private final long records;
    private final Serde<NexmarkBid> bids;
    private final String[] side;
    private final boolean memory;
    private final CountDownLatch done;
    private final StreamsBuilder builder = new StreamsBuilder();

    /** The latest result of an id and window, as an output row. */
    private final Map<Key, long[]> latest = new ConcurrentHashMap<>();

    /** q5, q7: the rows with the greatest value of a window. */
    private final Map<Long, Top> tops = new ConcurrentHashMap<>();

    private record Key(long id, long start) {}

    NexmarkStreamsQueries(
            String topic, long records, int schemaId, String[] side, boolean memory,
            CountDownLatch done) {
        this.topic = topic;
        this.records = records;
        this.side = side;
        this.memory = memory;
        this.done = done;
        bids = Serdes.serdeFrom(
                (to, bid) -> null, (from, value) -> new NexmarkBid().read(value, schemaId));
    }

    Topology of(String query) {
        switch (query) {
            case "q0" -> q0();
            case "q5" -> q5();
            case "q7" -> q7();
            case "q11" -> q11();
            case "q12" -> q12();
            case "q13" -> q13();
            case "q17" -> q17();
            default -> throw new IllegalArgumentException("no query " + query);
        }
        return builder.build();
    }

    /** Adds up the results once all are out; q0, q11 and q13 do it as they come. */
    void addUp() {
        List<long[]> rows = new ArrayList<>(latest.values());
        tops.values().forEach(top -> rows.addAll(top.rows));
        if (rows.isEmpty()) {
            return;
        }
        NexmarkSums sums = new NexmarkSums(rows.get(0).length);
        for (long[] row : rows) {
            sums.row();
            for (int n = 0; n < row.length; n++) {
                sums.add(n, row[n]);
            }
        }
    }

    private void q0() {
        ThreadLocal<NexmarkSums> sums = ThreadLocal.withInitial(() -> new NexmarkSums(5));
        counted(bids()).foreach((key, bid) -> add(sums.get(), bid, bid.extraBytes));
    }

    private void q13() {
        ThreadLocal<NexmarkSums> sums = ThreadLocal.withInitial(() -> new NexmarkSums(5));
        counted(bids()).foreach((key, bid) ->
                add(sums.get(), bid, side[(int) (bid.auction % side.length)].length()));
    }

    private static void add(NexmarkSums sums, NexmarkBid bid, long last) {
        sums.row();
        sums.add(0, bid.auction);
        sums.add(1, bid.bidder);
        sums.add(2, bid.price);
        sums.add(3, bid.dateTime);
        sums.add(4, last);
    }

    private void q5() {
        counted(bids()).groupByKey(Grouped.with(Serdes.ByteArray(), bids))
                .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, LATENESS).advanceBy(SLIDE))
                .count(windowed(Serdes.ByteArray(), Serdes.Long(), WINDOW.plus(LATENESS), WINDOW))
                .toStream()
                // Counts only grow: the greatest of an auction and window is its last.
                .foreach((window, num) ->
                        offer(window.window().start(), num, auction(window.key()), num));
    }

    private void q7() {
        NexmarkStreamsHighest.addStore(builder, memory);
        counted(bids())
                .processValues(
                        () -> new NexmarkStreamsHighest(WINDOW.toMillis(), LATENESS.toMillis()),
                        NexmarkStreamsHighest.STORE)
                .foreach((key, bid) -> offer(
                        bid.dateTime - bid.dateTime % WINDOW.toMillis(), bid.price,
                        bid.auction, bid.price, bid.bidder, bid.dateTime, bid.extraBytes));
    }

    private void q11() {
        NexmarkStreamsSessions.addStore(builder, memory, numbers());
        byBidder(bids())
                .process(() -> new NexmarkStreamsSessions(GAP, DAY), NexmarkStreamsSessions.STORE);
    }

    private void q12() {
        byBidder(stream(new WallclockTimestampExtractor()))
                .groupByKey(Grouped.with(Serdes.Long(), Serdes.ByteArray()))
                .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, DAY))
                .count(windowed(Serdes.Long(), Serdes.Long(), DAY.plus(WINDOW), WINDOW))
                .toStream()
                .foreach((window, count) ->
                        keep(window.key(), window, new long[] {count, window.key() * count}));
    }

    private void q17() {
        counted(bids()).groupByKey(Grouped.with(Serdes.ByteArray(), bids))
                .windowedBy(TimeWindows.ofSizeAndGrace(DAY, LATENESS))
                .aggregate(
                        () -> new long[] {0, 0, 0, 0, Long.MAX_VALUE, Long.MIN_VALUE, 0},
                        (auction, bid, total) -> plus(total, bid.price),
                        windowed(Serdes.ByteArray(), numbers(), DAY.plus(LATENESS), DAY))
                .toStream()
                .foreach((window, total) -> keep(
                        auction(window.key()), window, statistics(auction(window.key()), total)));
    }

    /** Bids, those of each price band, the lowest and highest price, the sum of prices. */
    private static long[] plus(long[] total, long price) {
        int band = price < 10_000 ? 1 : price < 1_000_000 ? 2 : 3;
        long[] sum = total.clone();
        sum[0]++;
        sum[band]++;
        sum[4] = Math.min(sum[4], price);
        sum[5] = Math.max(sum[5], price);
        sum[6] += price;
        return sum;
    }

    private static long[] statistics(long auction, long[] of) {
        return new long[] {
            auction, DAY_BYTES, of[0], of[1], of[2], of[3], of[4], of[5], of[6] / of[0], of[6]
        };
    }

    private static long auction(byte[] key) {
        return Long.parseLong(new String(key, StandardCharsets.US_ASCII));
    }

    private KStream<byte[], NexmarkBid> bids() {
        return stream((message, latest) -> ((NexmarkBid) message.value()).dateTime);
    }

    private KStream<byte[], NexmarkBid> stream(TimestampExtractor time) {
        return builder.stream(
                topic, Consumed.with(Serdes.ByteArray(), bids).withTimestampExtractor(time));
    }

    private KStream<Long, byte[]> byBidder(KStream<byte[], NexmarkBid> bids) {
        return counted(bids.map((auction, bid) -> new KeyValue<>(bid.bidder, ONE))
                .repartition(Repartitioned.with(Serdes.Long(), Serdes.ByteArray())
                        .withNumberOfPartitions(PARTITIONS)));
    }

    /** Counts what goes through to the end of the topology and says when all has. */
    private <K, V> KStream<K, V> counted(KStream<K, V> stream) {
        return stream.processValues(() -> new NexmarkStreamsCounting<>(records, done));
    }

    private <K, V> Materialized<K, V, WindowStore<Bytes, byte[]>> windowed(
            Serde<K> key, Serde<V> value, Duration kept, Duration size) {
        return Materialized.<K, V>as(
                        memory
                                ? Stores.inMemoryWindowStore("windows", kept, size, false)
                                : Stores.persistentTimestampedWindowStore("windows", kept, size, false))
                .withKeySerde(key)
                .withValueSerde(value);
    }

    private static Serde<long[]> numbers() {
        return Serdes.serdeFrom(
                (topic, values) -> {
                    ByteBuffer buffer = ByteBuffer.allocate(values.length * Long.BYTES);
                    buffer.asLongBuffer().put(values);
                    return buffer.array();
                },
                (topic, bytes) -> {
                    if (bytes == null) {
                        return null;
                    }
                    long[] values = new long[bytes.length / Long.BYTES];
                    ByteBuffer.wrap(bytes).asLongBuffer().get(values);
                    return values;
                });
    }

    private void keep(long id, Windowed<?> window, long[] row) {
        Finish.result();
        latest.put(new Key(id, window.window().start()), row);
    }

    private void offer(long start, long value, long... row) {
        Finish.result();
        tops.computeIfAbsent(start, none -> new Top()).offer(value, row);
    }

    /** The rows with the greatest value so far. */
    private static final class Top {
        private final List<long[]> rows = new ArrayList<>();
        private long value = Long.MIN_VALUE;

        synchronized void offer(long given, long[] row) {
            if (given > value) {
                rows.clear();
                value = given;
            }
            if (given == value) {
                rows.add(row);
            }
        }
    }
}
