import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.stream.IntStream;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Clicks and cost by campaign and window of ten seconds on Kafka Streams, into an output topic.
 *
 * <p>Arguments: broker, topic, its records, writer's schema, {@code rocksdb} or {@code memory},
 * then Kafka Streams settings as {@code key=value}. The clock stops when the last record was
 * processed; what the cache still holds then is written after it. Totals are read back from the
 * output topic.
 */
public final class LaneStreams {
    private static final Duration WINDOW = Duration.ofSeconds(10);
    private static final Duration KEPT = Duration.ofMinutes(10);
    private static final int PARTITIONS = 4;
    private static final CountDownLatch DONE = new CountDownLatch(1);

    private LaneStreams() {}

    public static void main(String[] args) throws Exception {
        String broker = args[0];
        String id = "bench.lane-streams-" + System.currentTimeMillis();
        String out = id + "-out";
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", broker))) {
            admin.createTopics(List.of(new NewTopic(out, PARTITIONS, (short) 1))).all().get();
        }
        Topology topology = topology(args[1], out, Long.parseLong(args[2]), args[3], args[4]);
        StreamsRun run = StreamsRun.start(id, topology, args, 5);
        DONE.await();
        long dropped = run.stop();
        long[] totals = totals(broker, out);
        Finish.say(totals[0], totals[1], dropped, totals[2]);
        run.tidy();
    }

    private static Topology topology(
            String topic, String out, long records, String schema, String store) {
        Serde<GenericRecord> click = Serdes.serdeFrom((to, value) -> null, new Clicks(schema));
        Serde<long[]> sum = Serdes.serdeFrom(LaneStreams::write, LaneStreams::read);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(topic, Consumed.with(Serdes.ByteArray(), click)
                        .withTimestampExtractor((message, latest) -> time(message.value())))
                .processValues(() -> new Counting(records))
                .groupByKey(Grouped.with(Serdes.ByteArray(), click))
                .windowedBy(TimeWindows.ofSizeWithNoGrace(WINDOW))
                .aggregate(
                        () -> new long[2],
                        (key, one, total) -> new long[] {total[0] + 1, total[1] + (Long) one.get(1)},
                        stored(store).withKeySerde(Serdes.ByteArray()).withValueSerde(sum))
                .toStream()
                .to(out, Produced.with(
                        WindowedSerdes.timeWindowedSerdeFrom(byte[].class, WINDOW.toMillis()), sum));
        return builder.build();
    }

    private static Materialized<byte[], long[], WindowStore<Bytes, byte[]>> stored(String store) {
        return Materialized.as(
                store.equals("memory")
                        ? Stores.inMemoryWindowStore("windows", KEPT, WINDOW, false)
                        : Stores.persistentTimestampedWindowStore("windows", KEPT, WINDOW, false));
    }

    private static long time(Object click) {
        return (Long) ((GenericRecord) click).get(0);
    }

    private static byte[] write(String topic, long[] sum) {
        return ByteBuffer.allocate(2 * Long.BYTES).putLong(sum[0]).putLong(sum[1]).array();
    }

    private static long[] read(String topic, byte[] value) {
        if (value == null) {
            return null;
        }
        ByteBuffer buffer = ByteBuffer.wrap(value);
        return new long[] {buffer.getLong(), buffer.getLong()};
    }

    /** Count and cost over the last result of every window, and how many results there were. */
    private static long[] totals(String broker, String out) {
        Map<String, Object> given =
                Map.of("bootstrap.servers", broker, "isolation.level", "read_committed");
        var bytes = new ByteArrayDeserializer();
        Map<Bytes, long[]> last = new HashMap<>();
        long results = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(given, bytes, bytes)) {
            List<TopicPartition> places = IntStream.range(0, PARTITIONS)
                    .mapToObj(partition -> new TopicPartition(out, partition)).toList();
            consumer.assign(places);
            consumer.seekToBeginning(places);
            Map<TopicPartition, Long> ends = consumer.endOffsets(places);
            while (ends.entrySet().stream()
                    .anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                for (var result : consumer.poll(Duration.ofMillis(100))) {
                    last.put(Bytes.wrap(result.key()), read(out, result.value()));
                    results++;
                }
            }
        }
        long[] totals = {0, 0, results};
        for (long[] sum : last.values()) {
            totals[0] += sum[0];
            totals[1] += sum[1];
        }
        return totals;
    }

    /** Event time and cost of a click; one object serves all threads. */
    private static final class Clicks implements Deserializer<GenericRecord> {
        private final ThreadLocal<Framed> framed;

        Clicks(String schema) {
            Schema written = new Schema.Parser().parse(schema);
            framed = ThreadLocal.withInitial(
                    () -> new Framed(written, "event_time", "cost_micros"));
        }

        @Override
        public GenericRecord deserialize(String topic, byte[] value) {
            return framed.get().read(value, null);
        }
    }

    /** Counts the records of one partition and says when the last of all has gone through. */
    private static final class Counting
            implements FixedKeyProcessor<byte[], GenericRecord, GenericRecord> {
        private final long records;
        private FixedKeyProcessorContext<byte[], GenericRecord> context;
        private Finish.Counter counter;
        private int partition;

        Counting(long records) {
            this.records = records;
        }

        @Override
        public void init(FixedKeyProcessorContext<byte[], GenericRecord> given) {
            context = given;
            partition = given.taskId().partition();
            counter = new Finish.Counter(1);
        }

        @Override
        public void process(FixedKeyRecord<byte[], GenericRecord> click) {
            long total = counter.record(partition);
            context.forward(click);
            if (total == records) {
                Finish.stop();
                DONE.countDown();
            }
        }
    }
}
