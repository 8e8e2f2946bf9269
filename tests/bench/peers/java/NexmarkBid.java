/**
 * A Nexmark bid, read by hand from Confluent's framing: no generic record, and the strings that a
 * query does not read are stepped over. For one thread.
 */
final class NexmarkBid {
    private static final int HEADER_BYTES = 5;

    long auction;
    long bidder;
    long price;
    long dateTime;

    /** Where {@code extra} lies in {@link #bytes}. */
    int extraAt;

    int extraBytes;
    byte[] bytes;
    private int at;

    /** Reads a value of the schema with this id; one of another schema is an error. */
    NexmarkBid read(byte[] value, int schemaId) {
        int id = (value[1] & 0xff) << 24 | (value[2] & 0xff) << 16 | (value[3] & 0xff) << 8 | value[4] & 0xff;
        if (value[0] != 0 || id != schemaId) {
            throw new IllegalArgumentException("not of schema " + schemaId);
        }
        bytes = value;
        at = HEADER_BYTES;
        auction = number();
        bidder = number();
        price = number();
        skip(); // channel
        skip(); // url
        dateTime = number();
        extraBytes = (int) number();
        extraAt = at;
        return this;
    }

    private void skip() {
        int length = (int) number();
        at += length;
    }

    /** The next zig-zag varint. */
    private long number() {
        long raw = 0;
        int shift = 0;
        byte next;
        do {
            next = bytes[at++];
            raw |= (long) (next & 0x7f) << shift;
            shift += 7;
        } while (next < 0);
        return raw >>> 1 ^ -(raw & 1);
    }
}
