import java.util.Collection;
import java.util.List;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.LookupTableSource;
import org.apache.flink.table.connector.source.lookup.LookupFunctionProvider;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.LookupFunction;

/** q13's side input: an array in memory, looked up by key. */
final class NexmarkFlinkSide implements LookupTableSource {
    private final String[] values;

    NexmarkFlinkSide(String[] values) {
        this.values = values;
    }

    @Override
    public LookupRuntimeProvider getLookupRuntimeProvider(LookupContext context) {
        return LookupFunctionProvider.of(new Lookup(values));
    }

    @Override
    public DynamicTableSource copy() {
        return this;
    }

    @Override
    public String asSummaryString() {
        return "side input";
    }

    /** The one row of a key, made beforehand. */
    public static final class Lookup extends LookupFunction {
        private final String[] values;
        private transient List<RowData>[] rows;

        Lookup(String[] values) {
            this.values = values;
        }

        @Override
        @SuppressWarnings({"unchecked", "rawtypes"}) // Java has no arrays of generic type
        public void open(FunctionContext context) {
            rows = new List[values.length];
            for (int key = 0; key < values.length; key++) {
                rows[key] = List.of(GenericRowData.of((long) key, StringData.fromString(values[key])));
            }
        }

        @Override
        public Collection<RowData> lookup(RowData key) {
            return rows[(int) key.getLong(0)];
        }
    }
}
