import java.util.concurrent.CountDownLatch;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;

/** Counts the records of one partition and says when the last of all has gone through. */
final class NexmarkStreamsCounting<K, V> implements FixedKeyProcessor<K, V, V> {
    private final long records;
    private final CountDownLatch done;
    private FixedKeyProcessorContext<K, V> context;
    private Finish.Counter counter;
    private int partition;

    NexmarkStreamsCounting(long records, CountDownLatch done) {
        this.records = records;
        this.done = done;
    }

    @Override
    public void init(FixedKeyProcessorContext<K, V> given) {
        context = given;
        partition = given.taskId().partition();
        counter = new Finish.Counter(1);
    }

    @Override
    public void process(FixedKeyRecord<K, V> record) {
        long total = counter.record(partition);
        context.forward(record);
        if (total == records) {
            Finish.result();
            done.countDown();
        }
    }
}
