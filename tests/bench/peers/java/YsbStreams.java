import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The Yahoo Streaming Benchmark on Kafka Streams: views by campaign and window of ten seconds, to
 * Redis.
 *
 * <p>Arguments: broker, topic, {@code json} or {@code avro}, writer's schema, file of the side
 * table, URL of Redis, prefix of keys, milliseconds between two writes, {@code local} or {@code
 * repartition}, records (0: run for ever), then Kafka Streams settings as {@code key=value}.
 *
 * <p>{@code local} counts by partition in a window store, without a repartition topic, and leaves
 * adding up the partitions to the reader. {@code repartition} is the text-book query: by campaign
 * through a repartition topic; since that mixes partitions, grace is a day, or it would drop.
 */
public final class YsbStreams {
    private static final Duration WINDOW = Duration.ofSeconds(10);
    private static final Duration GRACE = Duration.ofDays(1);
    private static final Duration KEPT = Duration.ofMinutes(10);
    private static final String COUNTS = "counts";
    private static final int PARTITIONS = 4;
    private static final long IDLE_NS = 5_000_000_000L;
    private static final CountDownLatch DONE = new CountDownLatch(1);
    private static final AtomicLong READ = new AtomicLong();
    private static final LongAdder FORWARDED = new LongAdder();
    private static final LongAdder ARRIVED = new LongAdder();
    private static final LongAdder RESULTS = new LongAdder();
    private static volatile long changedNs = System.nanoTime();

    private YsbStreams() {}

    public static void main(String[] args) throws Exception {
        String id = args[6].replaceFirst("-", ".") + "-" + System.currentTimeMillis();
        long records = Long.parseLong(args[9]);
        boolean local = args[8].equals("local");
        StreamsRun run = StreamsRun.start(id, topology(args, local, records), args, 10);
        await(local, records);
        long dropped = run.stop();
        Finish.say(null, null, dropped, RESULTS.sum());
        run.tidy();
    }

    /**
     * By partition the end is known. Behind a repartition topic all is there when as much has come
     * out as went in, and written when nothing was for a while; the clock ends at the last write.
     */
    private static void await(boolean local, long records) throws InterruptedException {
        if (local || records == 0) {
            DONE.await();
        }
        while (READ.get() < records || ARRIVED.sum() < FORWARDED.sum()) {
            Thread.sleep(50);
            changedNs = System.nanoTime();
        }
        if (local) {
            Finish.stop();
        }
        while (!local && System.nanoTime() - changedNs < IDLE_NS) {
            Thread.sleep(50);
        }
    }

    private static Topology topology(String[] args, boolean local, long records) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<byte[], byte[]> events =
                builder.stream(args[1], Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()));
        if (local) {
            builder.addStateStore(Stores.windowStoreBuilder(
                            Stores.inMemoryWindowStore(COUNTS, KEPT, WINDOW, false),
                            Serdes.Integer(), Serdes.Long())
                    .withCachingEnabled());
            events.process(() -> new Local(args, records), COUNTS);
            return builder.build();
        }
        events.process(() -> new Views(args))
                .repartition(Repartitioned.with(Serdes.Integer(), Serdes.ByteArray()))
                .peek((campaign, nothing) -> ARRIVED.increment())
                .groupByKey(Grouped.with(Serdes.Integer(), Serdes.ByteArray()))
                .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, GRACE))
                .count(Materialized.<Integer, Long>as(Stores.inMemoryWindowStore(
                                COUNTS, GRACE.plus(KEPT), WINDOW, false))
                        .withKeySerde(Serdes.Integer())
                        .withValueSerde(Serdes.Long())
                        .withCachingEnabled())
                .toStream()
                .process(() -> new Written(args));
        return builder.build();
    }

    /** What all three processors have: the side table, the store of results and its clock. */
    private abstract static class Step<K, V, K2, V2> implements Processor<K, V, K2, V2> {
        private final String[] args;
        YsbViews.Side side;
        YsbViews reader;
        YsbStore redis;
        ProcessorContext<K2, V2> context;
        int partition;

        Step(String[] args) {
            this.args = args;
        }

        @Override
        public void init(ProcessorContext<K2, V2> given) {
            try {
                side = YsbViews.Side.load(args[4]);
            } catch (IOException missing) {
                throw new IllegalStateException(missing);
            }
            context = given;
            partition = given.taskId().partition();
            reader = YsbViews.of(args[2], args[3], side);
            redis = new YsbStore(args[5], args[6]);
            context.schedule(
                    Duration.ofMillis(Long.parseLong(args[7])),
                    PunctuationType.WALL_CLOCK_TIME,
                    at -> flush());
        }

        void flush() {
            if (redis.isDue()) {
                redis.flush();
                changedNs = System.nanoTime();
            }
        }

        @Override
        public void close() {
            flush();
            RESULTS.add(redis.results());
            redis.close();
        }
    }

    /** Counts the views of one partition. */
    private static final class Local extends Step<byte[], byte[], Void, Void> {
        private final long records;
        private final long share;
        private Finish.Counter counter;
        private WindowStore<Integer, Long> counts;
        private long read;

        Local(String[] args, long records) {
            super(args);
            this.records = records;
            share = records / PARTITIONS;
        }

        @Override
        public void init(ProcessorContext<Void, Void> given) {
            super.init(given);
            counter = new Finish.Counter(1);
            counts = context.getStateStore(COUNTS);
        }

        @Override
        public void process(Record<byte[], byte[]> event) {
            counter.record(partition);
            if (reader.read(event.value())) {
                long start = reader.timeMs - reader.timeMs % WINDOW.toMillis();
                Long before = counts.fetch(reader.campaign, start);
                long seen = before == null ? 1 : before + 1;
                counts.put(reader.campaign, seen, start);
                redis.put(start, side.campaigns().get(reader.campaign) + "/" + partition, seen);
            }
            if (++read >= share && records > 0) {
                flush();
                if (READ.addAndGet(read) >= records) {
                    DONE.countDown();
                }
                read = 0;
            }
        }
    }

    /** Views only, by campaign, at their event time. */
    private static final class Views extends Step<byte[], byte[], Integer, byte[]> {
        private static final byte[] NOTHING = new byte[0];
        private Finish.Counter counter;

        Views(String[] args) {
            super(args);
        }

        @Override
        public void init(ProcessorContext<Integer, byte[]> given) {
            super.init(given);
            counter = new Finish.Counter(1);
        }

        @Override
        public void process(Record<byte[], byte[]> event) {
            counter.record(partition);
            if (reader.read(event.value())) {
                FORWARDED.increment();
                context.forward(new Record<>(reader.campaign, NOTHING, reader.timeMs));
            }
            READ.incrementAndGet();
        }
    }

    /** Notes every new count; what is due goes out at the next tick. */
    private static final class Written extends Step<Windowed<Integer>, Long, Void, Void> {
        Written(String[] args) {
            super(args);
        }

        @Override
        public void process(Record<Windowed<Integer>, Long> count) {
            changedNs = System.nanoTime();
            redis.put(
                    count.key().window().start(),
                    side.campaigns().get(count.key().key()),
                    count.value());
        }
    }
}
