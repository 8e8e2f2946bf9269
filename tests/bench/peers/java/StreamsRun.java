import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/** One run of a Kafka Streams application, from its start until nothing of it is left. */
final class StreamsRun {
    private static final CloseOptions CLOSE =
            CloseOptions.groupMembershipOperation(GroupMembershipOperation.LEAVE_GROUP)
                    .withTimeout(Duration.ofSeconds(60));

    private final String broker;
    private final String id;
    private final Path folder;
    private final KafkaStreams streams;

    private StreamsRun(String broker, String id, Path folder, KafkaStreams streams) {
        this.broker = broker;
        this.id = id;
        this.folder = folder;
        this.streams = streams;
    }

    /**
     * Starts it on the broker {@code args[0]}, with the settings ({@code key=value}) from {@code
     * args[first]} on. An error in it ends the process.
     */
    static StreamsRun start(String id, Topology topology, String[] args, int first)
            throws IOException {
        Path folder = Files.createTempDirectory("streams");
        Properties given = new Properties();
        given.put("application.id", id);
        given.put("bootstrap.servers", args[0]);
        given.put("auto.offset.reset", "earliest");
        given.put("state.dir", folder.toString());
        for (int at = first; at < args.length; at++) {
            String[] pair = args[at].split("=", 2);
            given.put(pair[0], pair[1]);
        }
        KafkaStreams streams = new KafkaStreams(topology, given);
        streams.setUncaughtExceptionHandler(StreamsRun::fail);
        streams.start();
        return new StreamsRun(args[0], id, folder, streams);
    }

    /** Ends it when what it holds is written; returns how many records it has dropped. */
    long stop() {
        long dropped = streams.metrics().entrySet().stream()
                .filter(one -> one.getKey().name().equals("dropped-records-total"))
                .mapToLong(one -> ((Number) one.getValue().metricValue()).longValue())
                .sum();
        streams.close(CLOSE);
        return dropped;
    }

    /** Deletes its group, its folder, and all topics whose names begin with its id. */
    void tidy() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", broker))) {
            Set<String> names = admin.listTopics().names().get();
            List<String> own = names.stream().filter(name -> name.startsWith(id)).toList();
            admin.deleteTopics(own).all().get();
            admin.deleteConsumerGroups(List.of(id)).all().get();
        }
        Folders.delete(folder);
    }

    private static StreamThreadExceptionResponse fail(Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(3);
        throw new AssertionError();
    }
}
