import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.CountDownLatch;

/**
 * A Nexmark query on Kafka Streams, over the whole topic.
 *
 * <p>Arguments: broker, topic, its records, schema id, side input, query, names of the output's
 * columns, {@code rocksdb} or {@code memory}, then Kafka Streams settings as {@code key=value}. The
 * clock stops when the last record was processed and what the cache still held has come out.
 */
public final class NexmarkStreams {

    private NexmarkStreams() {}

    public static void main(String[] args) throws Exception {
        String id = "bench.nexmark-streams-" + System.currentTimeMillis();
        CountDownLatch done = new CountDownLatch(1);
        NexmarkStreamsQueries queries = new NexmarkStreamsQueries(
                args[1], Long.parseLong(args[2]), Integer.parseInt(args[3]), side(Path.of(args[4])),
                args[7].equals("memory"), done);
        StreamsRun run = StreamsRun.start(id, queries.of(args[5]), args, 8);
        done.await();
        long dropped = run.stop();
        queries.addUp();
        Map<String, Long> sums = NexmarkSums.all(args[6].split(","));
        Finish.sums(sums);
        Finish.say(null, null, dropped, sums.get("rows"));
        run.tidy();
        Runtime.getRuntime().halt(0);
    }

    /** Values by key, which are 0, 1, 2 and so on. */
    private static String[] side(Path file) throws Exception {
        return Files.readAllLines(file).stream()
                .map(line -> line.split(",", 2)[1])
                .toArray(String[]::new);
    }
}
