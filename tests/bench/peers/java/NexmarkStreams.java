import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/**
 * A Nexmark query on Kafka Streams, over the whole topic.
 *
 * <p>Arguments: broker, topic, its records, schema id, side input, query, names of the output's
 * columns, {@code rocksdb} or {@code memory}, then Kafka Streams settings as {@code key=value}. The
 * clock stops when the last record was processed and what the cache still held has come out.
 */
public final class NexmarkStreams {
    private static final CloseOptions CLOSE =
            CloseOptions.groupMembershipOperation(GroupMembershipOperation.LEAVE_GROUP)
                    .withTimeout(Duration.ofSeconds(60));

    private NexmarkStreams() {}

    public static void main(String[] args) throws Exception {
        String id = "bench.nexmark-streams-" + System.currentTimeMillis();
        Path folder = Files.createTempDirectory("streams");
        CountDownLatch done = new CountDownLatch(1);
        NexmarkStreamsQueries queries = new NexmarkStreamsQueries(
                args[1], Long.parseLong(args[2]), Integer.parseInt(args[3]), side(Path.of(args[4])),
                args[7].equals("memory"), done);
        KafkaStreams streams = new KafkaStreams(queries.of(args[5]), properties(args, id, folder));
        streams.setUncaughtExceptionHandler(NexmarkStreams::fail);
        streams.start();
        done.await();
        long dropped = dropped(streams);
        streams.close(CLOSE);
        queries.addUp();
        Map<String, Long> sums = NexmarkSums.all(args[6].split(","));
        Finish.sums(sums);
        Finish.say(null, null, dropped, sums.get("rows"));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            tidy(admin, id);
        }
        Folders.delete(folder);
        Runtime.getRuntime().halt(0);
    }

    private static Properties properties(String[] args, String id, Path folder) {
        Properties given = new Properties();
        given.put("application.id", id);
        given.put("bootstrap.servers", args[0]);
        given.put("auto.offset.reset", "earliest");
        given.put("state.dir", folder.toString());
        for (int at = 8; at < args.length; at++) {
            String[] pair = args[at].split("=", 2);
            given.put(pair[0], pair[1]);
        }
        return given;
    }

    /** Values by key, which are 0, 1, 2 and so on. */
    private static String[] side(Path file) throws Exception {
        return Files.readAllLines(file).stream()
                .map(line -> line.split(",", 2)[1])
                .toArray(String[]::new);
    }

    private static StreamThreadExceptionResponse fail(Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(3);
        throw new AssertionError();
    }

    private static long dropped(KafkaStreams streams) {
        return streams.metrics().entrySet().stream()
                .filter(one -> one.getKey().name().equals("dropped-records-total"))
                .mapToLong(one -> ((Number) one.getValue().metricValue()).longValue())
                .sum();
    }

    private static void tidy(Admin admin, String id) throws Exception {
        Set<String> names = admin.listTopics().names().get();
        List<String> ours = names.stream().filter(name -> name.startsWith(id)).toList();
        admin.deleteTopics(ours).all().get();
        admin.deleteConsumerGroups(List.of(id)).all().get();
    }
}
