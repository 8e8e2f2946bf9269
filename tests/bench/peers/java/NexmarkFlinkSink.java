import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.binary.BinaryStringData;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.types.RowKind;

/** Flink's {@code blackhole}, but it adds up what it swallows. */
final class NexmarkFlinkSink implements DynamicTableSink {
    private final String table;
    private final DataType type;

    NexmarkFlinkSink(String table, DataType type) {
        this.table = table;
        this.type = type;
    }

    /** What all rows add up to; only once the job is done, or for counts that only grow. */
    static Map<String, Long> sums(String... columns) {
        return NexmarkSums.all(columns);
    }

    /** As {@code blackhole}: everything but what a later row replaces. */
    @Override
    public ChangelogMode getChangelogMode(ChangelogMode requested) {
        ChangelogMode.Builder kinds = ChangelogMode.newBuilder();
        requested.getContainedKinds().stream()
                .filter(kind -> kind != RowKind.UPDATE_BEFORE)
                .forEach(kinds::addContainedKind);
        return kinds.build();
    }

    @Override
    public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
        return SinkV2Provider.of(new Adding(table, type.getLogicalType().getChildren()));
    }

    @Override
    public DynamicTableSink copy() {
        return new NexmarkFlinkSink(table, type);
    }

    @Override
    public String asSummaryString() {
        return table;
    }

    private record Adding(String table, List<LogicalType> types) implements Sink<RowData> {
        @Override
        public SinkWriter<RowData> createWriter(WriterInitContext context) {
            return switch (table) {
                case "nexmark_q12" -> new Weighted();
                case "nexmark_q17" -> new Latest(types);
                default -> new Rows(types);
            };
        }
    }

    /** Notes when the input has ended. */
    private abstract static class Writer implements SinkWriter<RowData> {
        @Override
        public void flush(boolean end) {
            if (end) {
                Finish.result();
            }
        }

        @Override
        public void close() {}
    }

    /** All rows; none is ever replaced. */
    private static final class Rows extends Writer {
        private final List<LogicalType> types;
        private final NexmarkSums sums;

        Rows(List<LogicalType> types) {
            this.types = types;
            sums = new NexmarkSums(types.size());
        }

        @Override
        public void write(RowData row, Context context) {
            sums.row();
            for (int n = 0; n < types.size(); n++) {
                sums.add(n, value(row, n, types.get(n)));
            }
        }
    }

    /** q17: the latest row of every auction and day. */
    private static final class Latest extends Writer {
        private record Key(long auction, String day) {}

        private final Map<Key, long[]> latest = new HashMap<>();
        private final List<LogicalType> types;

        Latest(List<LogicalType> types) {
            this.types = types;
        }

        @Override
        public void write(RowData row, Context context) {
            long[] values = new long[types.size()];
            for (int n = 0; n < values.length; n++) {
                values[n] = value(row, n, types.get(n));
            }
            latest.put(new Key(row.getLong(0), row.getString(1).toString()), values);
        }

        @Override
        public void flush(boolean end) {
            super.flush(end);
            if (end) {
                NexmarkSums sums = new NexmarkSums(types.size());
                for (long[] values : latest.values()) {
                    sums.row();
                    for (int n = 0; n < values.length; n++) {
                        sums.add(n, values[n]);
                    }
                }
            }
        }
    }

    /** q12: what does not depend on the clock, as one row. */
    private static final class Weighted extends Writer {
        private final NexmarkSums sums = new NexmarkSums(2);

        @Override
        public void write(RowData row, Context context) {
            sums.add(0, row.getLong(1));
            sums.add(1, row.getLong(0) * row.getLong(1));
        }
    }

    private static long value(RowData row, int column, LogicalType type) {
        return switch (type.getTypeRoot()) {
            case BIGINT -> row.getLong(column);
            case TIMESTAMP_WITHOUT_TIME_ZONE -> row.getTimestamp(column, 3).getMillisecond();
            case VARCHAR -> ((BinaryStringData) row.getString(column)).getSizeInBytes();
            default -> throw new IllegalArgumentException("a column of " + type);
        };
    }
}
