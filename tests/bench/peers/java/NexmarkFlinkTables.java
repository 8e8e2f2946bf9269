import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.table.catalog.GenericInMemoryCatalog;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.Factory;

/**
 * The catalog of Nexmark's tables: {@code bid} is the topic, {@code side_input} a file of lines
 * {@code key,value} held in memory, every other table adds up its rows and throws them away.
 */
final class NexmarkFlinkTables extends GenericInMemoryCatalog {
    NexmarkFlinkTables(String name) {
        super(name);
    }

    @Override
    public Optional<Factory> getFactory() {
        return Optional.of(new Tables());
    }

    private static final class Tables implements DynamicTableSourceFactory, DynamicTableSinkFactory {
        @Override
        public String factoryIdentifier() {
            return "nexmark";
        }

        @Override
        public Set<ConfigOption<?>> requiredOptions() {
            return Set.of();
        }

        @Override
        public Set<ConfigOption<?>> optionalOptions() {
            return Set.of();
        }

        @Override
        public DynamicTableSource createDynamicTableSource(Context context) {
            Map<String, String> options = context.getCatalogTable().getOptions();
            return context.getObjectIdentifier().getObjectName().equals("bid")
                    ? new NexmarkFlinkBids(options, context.getPhysicalRowDataType())
                    : new NexmarkFlinkSide(lines(Path.of(options.get("path"))));
        }

        @Override
        public DynamicTableSink createDynamicTableSink(Context context) {
            return new NexmarkFlinkSink(
                    context.getObjectIdentifier().getObjectName(), context.getPhysicalRowDataType());
        }

        /** Values by key, which are 0, 1, 2 and so on. */
        private static String[] lines(Path file) {
            try {
                return Files.readAllLines(file).stream()
                        .map(line -> line.split(",", 2)[1])
                        .toArray(String[]::new);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
