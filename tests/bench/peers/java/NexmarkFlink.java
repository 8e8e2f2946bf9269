import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * A Nexmark query in Flink SQL on a mini-cluster, over the whole topic.
 *
 * <p>Arguments: broker, topic, its records, schema id, side input, SQL file, names of the output's
 * columns, {@code bounded} or {@code unbounded}, then Flink settings as {@code key=value}. The SQL
 * is Nexmark's; the tables it reads and writes are {@link NexmarkFlinkTables}.
 *
 * <p>Windows of processing time need {@code unbounded}, because Flink gives out no open window of
 * that kind when its input ends: the clock stops with the last record, and the sums are told when
 * the last window has come out.
 */
public final class NexmarkFlink {
    private static final String CATALOG = "nexmark";
    private static final long LAST_WINDOW_MS = 30_000;
    private static final long LOOK_MS = 100;

    private NexmarkFlink() {}

    public static void main(String[] args) throws Exception {
        Path folder = Files.createTempDirectory("flink");
        StreamTableEnvironment tables = StreamTableEnvironment.create(
                StreamExecutionEnvironment.getExecutionEnvironment(configuration(args, folder)));
        tables.registerCatalog(CATALOG, new NexmarkFlinkTables(CATALOG));
        tables.useCatalog(CATALOG);
        tables.executeSql(bids(args));
        tables.executeSql("CREATE TABLE side_input (key BIGINT, `value` VARCHAR)"
                + " WITH ('path' = '" + args[4] + "')");
        TableResult job = null;
        for (String statement : statements(Path.of(args[5]))) {
            job = tables.executeSql(statement);
        }
        if (args[7].equals("bounded")) {
            job.await();
        } else {
            awaitCount(Long.parseLong(args[2]), args[6].split(","));
        }
        Map<String, Long> sums = NexmarkFlinkSink.sums(args[6].split(","));
        Finish.sums(sums);
        Finish.say(null, null, 0, sums.get("rows"));
        Folders.delete(folder);
        Runtime.getRuntime().halt(0); // the mini-cluster's orderly end takes seconds
    }

    /** Waits until the first column adds up to all bids. */
    private static void awaitCount(long records, String[] columns) throws InterruptedException {
        long deadline = -1;
        while (NexmarkFlinkSink.sums(columns).get(columns[0]) < records) {
            Thread.sleep(LOOK_MS);
            boolean read = Finish.consumed().values().stream().mapToLong(n -> n).sum() >= records;
            if (read && deadline < 0) {
                deadline = System.currentTimeMillis() + LAST_WINDOW_MS;
            }
            if (read && System.currentTimeMillis() > deadline) {
                return; // the sums will tell
            }
        }
    }

    private static String[] statements(Path sql) throws Exception {
        return Files.readString(sql).replaceAll("--[^\n]*", "").strip().split(";\\s*");
    }

    private static String bids(String[] args) {
        return """
                CREATE TABLE bid (
                  auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL,
                  channel VARCHAR NOT NULL, url VARCHAR NOT NULL,
                  `dateTime` TIMESTAMP(3) NOT NULL, extra VARCHAR NOT NULL,
                  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
                ) WITH ('brokers' = '%s', 'topic' = '%s', 'records' = '%s', 'schema' = '%s', 'end' = '%s')
                """.formatted(args[0], args[1], args[2], args[3], args[7]);
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
}
