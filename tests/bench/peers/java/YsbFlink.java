import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.operators.ProcessingTimeService;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSourceBuilder;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.datastream.WindowedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.triggers.Trigger;
import org.apache.flink.streaming.api.windowing.triggers.TriggerResult;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * The Yahoo Streaming Benchmark on a Flink mini-cluster: views by campaign and window of ten
 * seconds, to Redis.
 *
 * <p>Arguments: broker, topic, {@code json} or {@code avro}, writer's schema, file of the side
 * table, URL of Redis, prefix of keys, milliseconds between two writes, then Flink settings as
 * {@code key=value}. With 0 milliseconds the whole topic is read and a window is written once, when
 * it ends; else it runs for ever and a window that changed is written so long after at most.
 */
public final class YsbFlink {
    private static final Duration WINDOW = Duration.ofSeconds(10);
    private static final int STRIDE = 1024;
    private static final int WINDOWS_MAX = 256;
    private static final long SOON_MS = 1;
    private static final long LATEST_MS = 1_000;
    private static final LongAdder RESULTS = new LongAdder();

    private YsbFlink() {}

    public static void main(String[] args) throws Exception {
        Path folder = Files.createTempDirectory("flink");
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.getExecutionEnvironment(configuration(args, folder));
        long everyMs = Long.parseLong(args[7]);
        var views = env.fromSource(source(args, everyMs), byEventTime(), "events");
        WindowedStream<Tuple2<Integer, Long>, Integer, TimeWindow> windows =
                views.keyBy(view -> view.f0, Types.INT).window(TumblingEventTimeWindows.of(WINDOW));
        if (everyMs > 0) {
            windows = windows.trigger(new Soon(everyMs));
        }
        windows.aggregate(new Count(), new Label(), Types.LONG, Types.LONG,
                        Types.TUPLE(Types.INT, Types.LONG, Types.LONG))
                .sinkTo(new ToRedis(args[5], args[6], args[4], everyMs > 0 ? SOON_MS : LATEST_MS));
        env.execute("ysb");
        Finish.say(null, null, 0, RESULTS.sum());
        Folders.delete(folder);
        Runtime.getRuntime().halt(0); // the mini-cluster's orderly end takes seconds
    }

    private static Configuration configuration(String[] args, Path folder) {
        Configuration given = new Configuration();
        given.setString("rest.port", "0");
        given.setString("execution.checkpointing.storage", "filesystem");
        given.setString("execution.checkpointing.dir", folder.toUri().toString());
        for (int at = 8; at < args.length; at++) {
            String[] pair = args[at].split("=", 2);
            given.setString(pair[0], pair[1]);
        }
        return given;
    }

    private static KafkaSource<Tuple2<Integer, Long>> source(String[] args, long everyMs) {
        KafkaSourceBuilder<Tuple2<Integer, Long>> builder =
                KafkaSource.<Tuple2<Integer, Long>>builder()
                        .setBootstrapServers(args[0])
                        .setTopics(args[1])
                        .setGroupId("bench-ysb-flink")
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setProperty("max.poll.records", "5000")
                        .setProperty("commit.offsets.on.checkpoint", "false")
                        .setDeserializer(new Views(args[2], args[3], args[4]));
        return (everyMs > 0 ? builder : builder.setBounded(OffsetsInitializer.latest())).build();
    }

    private static WatermarkStrategy<Tuple2<Integer, Long>> byEventTime() {
        return WatermarkStrategy.<Tuple2<Integer, Long>>forBoundedOutOfOrderness(Duration.ZERO)
                .withTimestampAssigner((view, appended) -> view.f1);
    }

    /** Campaign and event time of views; nothing of other events. */
    private static final class Views
            implements KafkaRecordDeserializationSchema<Tuple2<Integer, Long>> {
        private final String variant;
        private final String schema;
        private final String file;
        private transient YsbViews reader;
        private transient Finish.Counter counter;
        private transient Tuple2<Integer, Long> view;

        Views(String variant, String schema, String file) {
            this.variant = variant;
            this.schema = schema;
            this.file = file;
        }

        @Override
        public void open(DeserializationSchema.InitializationContext context) throws IOException {
            reader = YsbViews.of(variant, schema, YsbViews.Side.load(file));
            counter = new Finish.Counter(STRIDE);
            view = new Tuple2<>();
        }

        @Override
        public void deserialize(
                ConsumerRecord<byte[], byte[]> message, Collector<Tuple2<Integer, Long>> out) {
            counter.record(message.partition());
            if (reader.read(message.value())) {
                view.setFields(reader.campaign, reader.timeMs);
                out.collect(view);
            }
        }

        @Override
        public TypeInformation<Tuple2<Integer, Long>> getProducedType() {
            return Types.TUPLE(Types.INT, Types.LONG);
        }
    }

    private static final class Count
            implements AggregateFunction<Tuple2<Integer, Long>, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Tuple2<Integer, Long> view, Long seen) {
            return seen + 1;
        }

        @Override
        public Long getResult(Long seen) {
            return seen;
        }

        @Override
        public Long merge(Long one, Long other) {
            return one + other;
        }
    }

    /** Campaign, start of the window, views. */
    private static final class Label
            extends ProcessWindowFunction<
                    Long, Tuple3<Integer, Long, Long>, Integer, TimeWindow> {
        @Override
        public void process(
                Integer campaign,
                Context context,
                Iterable<Long> seen,
                Collector<Tuple3<Integer, Long, Long>> out) {
            out.collect(new Tuple3<>(
                    campaign, context.window().getStart(), seen.iterator().next()));
        }
    }

    /** Fires so long after the first view that was not told yet, and forgets a window at its end. */
    private static final class Soon extends Trigger<Tuple2<Integer, Long>, TimeWindow> {
        private final long everyMs;
        private final ValueStateDescriptor<Long> due =
                new ValueStateDescriptor<>("due", Types.LONG);

        Soon(long everyMs) {
            this.everyMs = everyMs;
        }

        @Override
        public TriggerResult onElement(
                Tuple2<Integer, Long> view, long time, TimeWindow window, TriggerContext context)
                throws Exception {
            ValueState<Long> told = context.getPartitionedState(due);
            if (told.value() == null) {
                long at = context.getCurrentProcessingTime() + everyMs;
                told.update(at);
                context.registerProcessingTimeTimer(at);
                context.registerEventTimeTimer(window.maxTimestamp());
            }
            return TriggerResult.CONTINUE;
        }

        @Override
        public TriggerResult onProcessingTime(
                long time, TimeWindow window, TriggerContext context) throws Exception {
            context.getPartitionedState(due).clear();
            return TriggerResult.FIRE;
        }

        @Override
        public TriggerResult onEventTime(
                long time, TimeWindow window, TriggerContext context) throws Exception {
            return context.getPartitionedState(due).value() == null
                    ? TriggerResult.CONTINUE
                    : TriggerResult.FIRE;
        }

        @Override
        public void clear(TimeWindow window, TriggerContext context) throws Exception {
            ValueState<Long> told = context.getPartitionedState(due);
            if (told.value() != null) {
                context.deleteProcessingTimeTimer(told.value());
                told.clear();
            }
            context.deleteEventTimeTimer(window.maxTimestamp());
        }
    }

    /** Absolute counts, so a repeat after a restart changes nothing; complete at every checkpoint. */
    private static final class ToRedis implements Sink<Tuple3<Integer, Long, Long>> {
        private final String url;
        private final String prefix;
        private final String file;
        private final long everyMs;

        ToRedis(String url, String prefix, String file, long everyMs) {
            this.url = url;
            this.prefix = prefix;
            this.file = file;
            this.everyMs = everyMs;
        }

        @Override
        public SinkWriter<Tuple3<Integer, Long, Long>> createWriter(WriterInitContext context)
                throws IOException {
            return new Writer(this, context.getProcessingTimeService());
        }
    }

    private static final class Writer implements SinkWriter<Tuple3<Integer, Long, Long>> {
        private final YsbStore store;
        private final List<String> campaigns;
        private final ProcessingTimeService clock;
        private final long everyMs;
        private boolean planned;

        Writer(ToRedis sink, ProcessingTimeService clock) throws IOException {
            store = new YsbStore(sink.url, sink.prefix);
            campaigns = YsbViews.Side.load(sink.file).campaigns();
            this.clock = clock;
            everyMs = sink.everyMs;
        }

        @Override
        public void write(Tuple3<Integer, Long, Long> result, Context context) {
            store.put(result.f1, campaigns.get(result.f0), result.f2);
            if (!planned) {
                planned = true;
                clock.registerTimer(clock.getCurrentProcessingTime() + everyMs, at -> flush());
            }
            if (store.windows() >= WINDOWS_MAX) {
                flush();
            }
        }

        @Override
        public void flush(boolean endOfInput) {
            flush();
        }

        private void flush() {
            planned = false;
            store.flush();
        }

        @Override
        public void close() {
            RESULTS.add(store.results());
            store.close();
        }
    }
}
