import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;

/**
 * Reads values in Confluent's framing (a zero byte, four of the schema's id, the Avro body), of one
 * schema and only some of its fields: Avro skips the others. For one thread.
 */
final class Framed {
    private static final int HEADER_BYTES = 5;
    private final Schema read;
    private final GenericDatumReader<GenericRecord> reader;
    private BinaryDecoder decoder;

    /** Fields are numbered in the order given here; none given means all, as they are written. */
    Framed(Schema written, String... fields) {
        read = fields.length == 0 ? written : only(written, fields);
        reader = new GenericDatumReader<>(written, read);
    }

    /** The number of a field in the records that are read. */
    int position(String field) {
        return read.getField(field).pos();
    }

    /** Decodes into {@code reuse}, or into a new record if that is null. */
    GenericRecord read(byte[] value, GenericRecord reuse) {
        decoder = DecoderFactory.get()
                .binaryDecoder(value, HEADER_BYTES, value.length - HEADER_BYTES, decoder);
        try {
            return reader.read(reuse, decoder);
        } catch (IOException damaged) {
            throw new IllegalArgumentException("not of the schema", damaged);
        }
    }

    private static Schema only(Schema written, String... fields) {
        List<Schema.Field> kept = Arrays.stream(fields)
                .map(name -> new Schema.Field(written.getField(name), written.getField(name).schema()))
                .toList();
        return Schema.createRecord(
                written.getName(), written.getDoc(), written.getNamespace(), false, kept);
    }
}
