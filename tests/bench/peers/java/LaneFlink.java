import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.atomic.LongAdder;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericRecord;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * Clicks and cost by campaign and window of ten seconds on a Flink mini-cluster, the whole topic.
 *
 * <p>Arguments: broker, topic, writer's schema, {@code needed} or {@code whole}, then Flink settings
 * as {@code key=value}. Decodes the needed fields only or the whole record; the needed ones alone
 * cross keyBy. Results are added up and thrown away.
 */
public final class LaneFlink {
    private static final Duration WINDOW = Duration.ofSeconds(10);
    private static final String[] NEEDED = {"campaign_id", "event_time", "cost_micros"};
    private static final int FIRST_SETTING = 4;
    private static final int STRIDE = 1024;
    private static final LongAdder COUNT = new LongAdder();
    private static final LongAdder COST = new LongAdder();
    private static final LongAdder RESULTS = new LongAdder();

    private LaneFlink() {}

    public static void main(String[] args) throws Exception {
        Path folder = Files.createTempDirectory("flink");
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.getExecutionEnvironment(configuration(args, folder));
        Clicks decoded = new Clicks(args[2], args[3].equals("whole") ? new String[0] : NEEDED);
        var clicks = env.fromSource(source(args[0], args[1], decoded), byEventTime(), "clicks");
        totals(clicks).map(LaneFlink::note).returns(Types.VOID).sinkTo(new DiscardingSink<>());
        env.execute("lane");
        long consumed = Finish.consumed().values().stream().mapToLong(Long::longValue).sum();
        Finish.say(COUNT.sum(), COST.sum(), consumed - COUNT.sum(), RESULTS.sum());
        Folders.delete(folder);
        Runtime.getRuntime().halt(0); // the mini-cluster's orderly end takes seconds
    }

    private static Configuration configuration(String[] args, Path folder) {
        Configuration given = new Configuration();
        given.setString("rest.port", "0");
        given.setString("io.tmp.dirs", folder.toString());
        given.setString("execution.checkpointing.storage", "filesystem");
        given.setString("execution.checkpointing.dir", folder.toUri().toString());
        for (int at = FIRST_SETTING; at < args.length; at++) {
            String[] pair = args[at].split("=", 2);
            given.setString(pair[0], pair[1]);
        }
        return given;
    }

    private static KafkaSource<Tuple3<Long, Long, Long>> source(
            String broker, String topic, Clicks decoded) {
        return KafkaSource.<Tuple3<Long, Long, Long>>builder()
                .setBootstrapServers(broker)
                .setTopics(topic)
                .setGroupId("bench-lane-flink")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setBounded(OffsetsInitializer.latest())
                .setProperty("max.poll.records", "5000")
                .setProperty("commit.offsets.on.checkpoint", "false")
                .setDeserializer(decoded)
                .build();
    }

    private static WatermarkStrategy<Tuple3<Long, Long, Long>> byEventTime() {
        return WatermarkStrategy.<Tuple3<Long, Long, Long>>forBoundedOutOfOrderness(Duration.ZERO)
                .withTimestampAssigner((click, appended) -> click.f1);
    }

    private static DataStream<Tuple4<Long, Long, Long, Long>> totals(
            DataStream<Tuple3<Long, Long, Long>> clicks) {
        TypeInformation<Tuple2<Long, Long>> pair = Types.TUPLE(Types.LONG, Types.LONG);
        return clicks.keyBy(click -> click.f0, Types.LONG)
                .window(TumblingEventTimeWindows.of(WINDOW))
                .aggregate(new Add(), new Label(), pair, pair,
                        Types.TUPLE(Types.LONG, Types.LONG, Types.LONG, Types.LONG));
    }

    private static Void note(Tuple4<Long, Long, Long, Long> total) {
        COUNT.add(total.f2);
        COST.add(total.f3);
        RESULTS.increment();
        Finish.result();
        return null;
    }

    /** Campaign, event time and cost of a click. */
    private static final class Clicks
            implements KafkaRecordDeserializationSchema<Tuple3<Long, Long, Long>> {
        private final String schema;
        private final String[] fields;
        private transient Framed framed;
        private transient int campaign;
        private transient int time;
        private transient int cost;
        private transient Finish.Counter counter;
        private transient GenericRecord record;
        private transient Tuple3<Long, Long, Long> click;

        Clicks(String schema, String[] fields) {
            this.schema = schema;
            this.fields = fields;
        }

        @Override
        public void open(DeserializationSchema.InitializationContext context) {
            framed = new Framed(new Schema.Parser().parse(schema), fields);
            campaign = framed.position(NEEDED[0]);
            time = framed.position(NEEDED[1]);
            cost = framed.position(NEEDED[2]);
            counter = new Finish.Counter(STRIDE);
            click = new Tuple3<>();
        }

        @Override
        public void deserialize(
                ConsumerRecord<byte[], byte[]> message, Collector<Tuple3<Long, Long, Long>> out) {
            counter.record(message.partition());
            record = framed.read(message.value(), record);
            click.setFields(
                    (Long) record.get(campaign), (Long) record.get(time), (Long) record.get(cost));
            out.collect(click);
        }

        @Override
        public TypeInformation<Tuple3<Long, Long, Long>> getProducedType() {
            return Types.TUPLE(Types.LONG, Types.LONG, Types.LONG);
        }
    }

    private static final class Add
            implements AggregateFunction<
                    Tuple3<Long, Long, Long>, Tuple2<Long, Long>, Tuple2<Long, Long>> {
        @Override
        public Tuple2<Long, Long> createAccumulator() {
            return new Tuple2<>(0L, 0L);
        }

        @Override
        public Tuple2<Long, Long> add(Tuple3<Long, Long, Long> click, Tuple2<Long, Long> sum) {
            sum.f0++;
            sum.f1 += click.f2;
            return sum;
        }

        @Override
        public Tuple2<Long, Long> getResult(Tuple2<Long, Long> sum) {
            return sum;
        }

        @Override
        public Tuple2<Long, Long> merge(Tuple2<Long, Long> one, Tuple2<Long, Long> other) {
            return new Tuple2<>(one.f0 + other.f0, one.f1 + other.f1);
        }
    }

    /** Campaign, start of the window, count, cost. */
    private static final class Label
            extends ProcessWindowFunction<
                    Tuple2<Long, Long>, Tuple4<Long, Long, Long, Long>, Long, TimeWindow> {
        @Override
        public void process(
                Long campaign,
                Context context,
                Iterable<Tuple2<Long, Long>> sums,
                Collector<Tuple4<Long, Long, Long, Long>> out) {
            Tuple2<Long, Long> sum = sums.iterator().next();
            out.collect(new Tuple4<>(campaign, context.window().getStart(), sum.f0, sum.f1));
        }
    }
}
