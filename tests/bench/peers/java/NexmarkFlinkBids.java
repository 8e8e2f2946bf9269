import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSourceBuilder;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.source.DataStreamScanProvider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.abilities.SupportsProjectionPushDown;
import org.apache.flink.table.connector.source.abilities.SupportsWatermarkPushDown;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.types.DataType;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * The topic as a table: watermarks by partition, and only the columns of a query are decoded. Its
 * format is by hand, since Flink's own Avro format makes a generic record of every field first.
 */
final class NexmarkFlinkBids
        implements ScanTableSource, SupportsWatermarkPushDown, SupportsProjectionPushDown {
    private final Map<String, String> options;
    private WatermarkStrategy<RowData> watermarks = WatermarkStrategy.noWatermarks();
    private int[] columns = {0, 1, 2, 3, 4, 5, 6};
    private TypeInformation<RowData> produced;
    private DataType type;

    NexmarkFlinkBids(Map<String, String> options, DataType type) {
        this.options = options;
        this.type = type;
    }

    @Override
    public void applyWatermark(WatermarkStrategy<RowData> given) {
        watermarks = given;
    }

    @Override
    public boolean supportsNestedProjection() {
        return false;
    }

    @Override
    public void applyProjection(int[][] fields, DataType producedType) {
        columns = new int[fields.length];
        for (int n = 0; n < fields.length; n++) {
            columns[n] = fields[n][0];
        }
        type = producedType;
    }

    @Override
    public ChangelogMode getChangelogMode() {
        return ChangelogMode.insertOnly();
    }

    @Override
    public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
        produced = context.createTypeInformation(type);
        boolean bounded = options.get("end").equals("bounded");
        return new DataStreamScanProvider() {
            @Override
            public DataStream<RowData> produceDataStream(
                    ProviderContext provider, StreamExecutionEnvironment env) {
                return env.fromSource(source(bounded), watermarks, "bids");
            }

            @Override
            public boolean isBounded() {
                return bounded;
            }
        };
    }

    private KafkaSource<RowData> source(boolean bounded) {
        long records = bounded ? Long.MAX_VALUE : Long.parseLong(options.get("records"));
        KafkaSourceBuilder<RowData> builder = KafkaSource.<RowData>builder()
                .setBootstrapServers(options.get("brokers"))
                .setTopics(options.get("topic"))
                .setGroupId("bench-nexmark-flink")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setProperty("max.poll.records", "5000")
                .setProperty("commit.offsets.on.checkpoint", "false")
                .setDeserializer(new Bids(
                        Integer.parseInt(options.get("schema")), columns, produced, records));
        return bounded ? builder.setBounded(OffsetsInitializer.latest()).build() : builder.build();
    }

    @Override
    public DynamicTableSource copy() {
        NexmarkFlinkBids copy = new NexmarkFlinkBids(options, type);
        copy.watermarks = watermarks;
        copy.columns = columns;
        return copy;
    }

    @Override
    public String asSummaryString() {
        return "bids";
    }

    /** Some columns of a bid, in one row object that is used again. */
    private static final class Bids implements KafkaRecordDeserializationSchema<RowData> {
        private static final int STRIDE = 1024;
        private final int schemaId;
        private final int[] columns;
        private final TypeInformation<RowData> produced;
        private final long records;
        private transient NexmarkBid bid;
        private transient GenericRowData row;
        private transient Finish.Counter counter;

        /** The clock stops with the record of this number. */
        Bids(int schemaId, int[] columns, TypeInformation<RowData> produced, long records) {
            this.schemaId = schemaId;
            this.columns = columns;
            this.produced = produced;
            this.records = records;
        }

        @Override
        public void open(DeserializationSchema.InitializationContext context) {
            bid = new NexmarkBid();
            row = new GenericRowData(columns.length);
            counter = new Finish.Counter(records == Long.MAX_VALUE ? STRIDE : 1);
        }

        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> message, Collector<RowData> out) {
            long total = counter.record(message.partition());
            bid.read(message.value(), schemaId);
            for (int n = 0; n < columns.length; n++) {
                row.setField(n, field(columns[n]));
            }
            out.collect(row);
            if (total == records) {
                Finish.stop();
            }
        }

        private Object field(int column) {
            return switch (column) {
                case 0 -> bid.auction;
                case 1 -> bid.bidder;
                case 2 -> bid.price;
                case 5 -> TimestampData.fromEpochMillis(bid.dateTime);
                case 6 -> StringData.fromBytes(bid.bytes, bid.extraAt, bid.extraBytes);
                default -> throw new IllegalArgumentException("no query reads column " + column);
            };
        }

        @Override
        public TypeInformation<RowData> getProducedType() {
            return produced;
        }
    }
}
